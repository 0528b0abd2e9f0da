"""For tests and benchmarks: workers, each a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import define, field

from ale_nats_client.testing import wait_for

ALE = str(Path(sys.executable).parent / "ale")
SLOTS = 4
LOST_AFTER_S = 1.5


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
        command = [
            ALE,
            "workers",
            "run",
            "--nats",
            self.url,
            "-n",
            str(SLOTS),
            *self.options,
            *options,
        ]
        with output.open("wb") as file:
            # A worker that is killed leaves its sandboxes behind, in this folder.
            variables = {**os.environ, "TMPDIR": str(self.folder), **(environ or {})}
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
        """End all, with what they have started; prints what they have written, for failed tests."""
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(10)
            worker.kill()
            worker.wait()
        self.workers.clear()
        for output in sorted(self.folder.glob("worker-*.log")):
            print(f"{output}:\n{output.read_text()}")


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
