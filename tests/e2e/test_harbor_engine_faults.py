"""An engine that is killed or whose disk is full while task folders are run: an engine of the
test's own, so that nobody else's containers end with it."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from ale_sandboxing.container_testing.images import BUSYBOX, CannotMakeError, provide

from .harbor_tasks import PRIVILEGES, outcomes

pytestmark = [pytest.mark.engine, pytest.mark.long]
WAIT_S = 60.0
_DISK = "size=64m"


@define
class Engine:
    """A dockerd without networks, whose files are in memory."""

    folder: Path
    process: "subprocess.Popen[bytes] | None" = None
    holder: "subprocess.Popen[bytes] | None" = None
    """Keeps a network namespace for all its processes, over a restart too: without a bridge,
    dockerd would remove docker0, which is another engine's."""

    def _namespace(self) -> str:
        if self.holder is None:
            self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        made = Path(f"/proc/{self.holder.pid}/ns/net")
        while made.readlink() == Path("/proc/self/ns/net").readlink():
            time.sleep(0.01)
        return str(made)

    @property
    def address(self) -> str:
        return f"unix://{self.folder}/socket"

    def start(self) -> None:
        folder = self.folder
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
        (folder / "pid").unlink(missing_ok=True)
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *("nsenter", f"--net={self._namespace()}"),
                    *("dockerd", "--host", self.address, "--bridge", "none"),
                    *("--iptables=false", "--ip6tables=false", "--shutdown-timeout", "1"),
                    *(f"--{option}={folder / name}" for option, name in places.items()),
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + WAIT_S
        while not self.ok("version"):
            message = (folder / "log").read_text()[-2000:]
            assert time.monotonic() < end, message
            assert self.process.poll() is None, message
            time.sleep(0.2)

    def kill(self) -> None:
        """As if it had crashed: its containers go on without it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._kill_containerd()

    def _kill_containerd(self) -> None:
        """It is a child of dockerd's, and one that is half dead keeps the next from starting."""
        for file in self.folder.glob("exec/containerd/containerd.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)
            file.unlink()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(WAIT_S)
        self._kill_containerd()
        if self.holder is not None:
            self.holder.kill()
            self.holder.wait()

    def ok(self, *arguments: str) -> bool:
        argv = ["docker", "--host", self.address, *arguments]
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0

    def containers(self) -> list[str]:
        argv = ["docker", "--host", self.address, "ps", "--all", "--quiet", "--no-trunc"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture
def engine() -> Iterator[Engine]:
    if os.getuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("an engine of one's own needs root and dockerd")
    # Not below the test's own folder: a socket's path is short.
    with tempfile.TemporaryDirectory(prefix="ale-engine-") as name:
        made = Engine(Path(name))
        data = made.folder / "data"
        data.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", _DISK, "tmpfs", str(data)]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            pytest.skip("mounting a tmpfs needs root")
        try:
            made.start()
            try:
                provide(["docker", "--host", made.address], BUSYBOX)
            except CannotMakeError as error:
                pytest.skip(str(error))
            yield made
        finally:
            made.stop()
            subprocess.run(["umount", "--recursive", "--lazy", str(data)], check=False)


def add(workshop: Any, name: str, solve: str) -> None:
    """A task that holds when its reference solution has left the file done."""
    check = "if [ -e done ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt"
    texts = {
        "task.toml": f'[environment]\ndocker_image = "{BUSYBOX}"\nworkdir = "/app"\n'
        'network_mode = "no-network"\n',
        "instruction.md": "Do it.\n",
        "tests/test.sh": f"#!/bin/sh\n{check}\n",
        "solution/solve.sh": f"#!/bin/sh\n{solve}\n",
    }
    for path, text in texts.items():
        workshop.write(f"tasks/{name}/{path}", text)


def config(workshop: Any, engine: Engine) -> None:
    """One task after the other."""
    workshop.config(
        tasks={"type": "harbor", "path": "tasks"},
        sandbox={"type": "docker", "host": engine.address, **PRIVILEGES},
        agent={"type": "oracle"},
        run={"concurrency": 1, "retries": 0},
    )


def wait_for_file(workshop: Any, engine: Engine, file: str) -> None:
    def look() -> bool:
        time.sleep(0.1)  # each look starts some processes
        return any(engine.ok("exec", id, "test", "-e", file) for id in engine.containers())

    workshop.wait_for(look, timeout_s=WAIT_S)


def test_an_engine_that_is_killed_and_comes_back_breaks_the_episode_it_held(
    workshop: Any, engine: Engine
) -> None:
    add(workshop, "a-slow", "touch /app/begun; sleep 600")
    add(workshop, "b-sound", "touch done")
    config(workshop, engine)
    running = workshop.start("run", "run.yaml")
    wait_for_file(workshop, engine, "/app/begun")
    engine.kill()
    engine.start()
    ended = running.ended(timeout_s=WAIT_S)
    assert ended.code == 3, ended.text
    found = outcomes(workshop)
    reward, message = found["a-slow"]
    assert reward is None
    assert message.startswith("agent: SandboxError: ")
    assert "has ended" in message
    assert found["b-sound"][0] == 1.0
    assert engine.containers() == []


def test_an_engine_that_is_gone_is_the_cause_and_resume_does_the_rest(
    workshop: Any, engine: Engine
) -> None:
    add(workshop, "a-slow", "touch /app/begun; sleep 600")
    for name in ("b-sound", "c-sound"):
        add(workshop, name, "touch done")
    config(workshop, engine)
    running = workshop.start("run", "run.yaml")
    wait_for_file(workshop, engine, "/app/begun")
    running.signal(signal.SIGINT)  # no other is begun
    for container in engine.containers():  # one may be there already for the next
        engine.ok("kill", container)
    engine.kill()
    ended = running.ended(timeout_s=WAIT_S)
    assert ended.code != 0, ended.text
    assert "docker could not remove: ale-" in ended.err, "it says what is left on the engine"
    assert "Traceback" not in ended.err
    said = re.findall(r"sandbox (\w+) could not be removed", ended.err)
    assert len(said) == len({*said}) > 0, ended.err
    found = outcomes(workshop)
    assert list(found) == ["a-slow"]
    reward, message = found["a-slow"]
    assert reward is None
    assert "docker does not answer" in message or "has ended" in message
    engine.start()
    resumed = workshop.ale("run", "--resume", str(workshop.run), timeout_s=WAIT_S)
    assert resumed.code == 3, resumed.text
    rewards = {task: reward for task, (reward, _) in outcomes(workshop).items()}
    assert rewards == {"a-slow": None, "b-sound": 1.0, "c-sound": 1.0}
    assert engine.containers() == []


def test_a_full_disk_of_the_engine_is_the_cause_and_others_run_after_it(
    workshop: Any, engine: Engine
) -> None:
    add(workshop, "a-fills", "touch done; cat /dev/zero >/app/big")
    add(workshop, "b-sound", "touch done")
    config(workshop, engine)
    ended = workshop.ale("run", "run.yaml", timeout_s=WAIT_S)
    assert ended.code == 3, ended.text
    found = outcomes(workshop)
    assert found["a-fills"][0] is None
    assert "No space left on device" in found["a-fills"][1].replace("no space", "No space")
    assert found["b-sound"][0] == 1.0
    assert engine.containers() == []


def test_a_disk_that_is_full_before_a_sandbox_is_opened_is_the_cause(
    workshop: Any, engine: Engine
) -> None:
    add(workshop, "a", "touch done")
    config(workshop, engine)
    filler = engine.folder / "data" / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 20)):
            pass
    assert shutil.disk_usage(filler.parent).free == 0
    ended = workshop.ale("run", "run.yaml", timeout_s=WAIT_S)
    assert ended.code == 3, ended.text
    reward, message = outcomes(workshop)["a"]
    assert (reward, message.split(":")[0]) == (None, "sandbox")
    assert "no space left on device" in message
    filler.unlink()
    workshop.succeeds("run", "run.yaml", timeout_s=WAIT_S)
    assert engine.containers() == []
