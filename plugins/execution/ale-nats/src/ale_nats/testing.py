"""For tests and benchmarks: a NATS server and workers, each a process of its own."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import define, field

ALE = str(Path(sys.executable).parent / "ale")
SLOTS = 4
LOST_AFTER_S = 1.5
_START_S = 30.0


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = _START_S) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} took longer than {limit_s:g} s"
        time.sleep(0.02)


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@define
class Server:
    """`nats-server -js` with its files in a folder."""

    folder: Path
    options: Sequence[str] = ()
    scheme: str = "nats"
    port: int = field(factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """What it has printed."""
        return self.folder / "server.log"

    def start(self) -> None:
        """Start it, over what it had stored."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["nats-server", "-js", "-a", "127.0.0.1", "-p", str(self.port)]
        command += ["-sd", str(self.folder / "store"), "-l", str(self.log), *self.options]
        self.process = subprocess.Popen(command, start_new_session=True)
        wait_for(self._listens, "nats-server")

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@define
class WorkerGroup:
    """Workers of one server."""

    url: str
    folder: Path
    options: Sequence[str] = ()
    workers: list["subprocess.Popen[bytes]"] = field(factory=list)
    started: int = 0

    def start(self, *options: str, environ: dict[str, str] | None = None) -> Path:
        """One more; its output."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.started += 1
        output = self.folder / f"worker-{self.started}.log"
        command = [ALE, "worker", "--nats", self.url, "-n", str(SLOTS), *self.options, *options]
        with output.open("wb") as file:
            variables = {**os.environ, **(environ or {})}
            made = subprocess.Popen(command, stderr=file, start_new_session=True, env=variables)
        self.workers.append(made)
        wait_for(lambda: "waiting for jobs" in output.read_text(), f"worker {self.started}")
        return output

    def kill(self, pid: int) -> None:
        """Kill the worker that is this process or an ancestor of it, and start another one."""
        ancestors = set(_ancestors(pid))
        (found,) = (worker for worker in self.workers if worker.pid in ancestors)
        self.end(found)
        self.start()

    def end(self, worker: "subprocess.Popen[bytes]") -> None:
        """Kill one."""
        self.workers.remove(worker)
        worker.kill()
        worker.wait()

    def stop(self) -> None:
        """End all, with what they have started."""
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(10)
            worker.kill()
            worker.wait()
        self.workers.clear()


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
