"""An engine that sees no file, process or network of this machine's: as in a virtual machine."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any, cast

from attrs import evolve

from ale.testing.waiting import wait_for
from ale.types import SandboxSpec
from ale_sandboxing.container.backend import ContainerBackend
from ale_sandboxing.container.probing import ask
from ale_sandboxing.container_testing.images import BUSYBOX
from ale_sandboxing.container_testing.tools import built, out, refusal

INSIDE = """
import asyncio, importlib, json, sys
from ale.plugin import BuildContext
from ale.types import SandboxSpec

async def main():
    plugin, options = importlib.import_module(sys.argv[1]), json.loads(sys.argv[2])
    backend = plugin.build(plugin.ale_sandboxes()[0].options(**options), BuildContext())
    async with backend.open(SandboxSpec()) as box:
        await box.write("file", b"from inside")
        session = await box.session()
        print((await box.exec("cat file")).stdout, (await session.run("exit 3")).exit_code)
    await backend.aclose()

asyncio.run(main())
"""
"""For a Python elsewhere that has `imported`: a plugin's module, and its options as JSON. Prints
``b'from inside' 3``."""
PYTHON = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
"""This interpreter, below `sys.base_prefix`."""
_WAIT_S = 60.0
_APART = [
    *("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
    # Its /tmp is empty; the shell waits for whatever process has lost its parent.
    *("sh", "-c", "mount -t tmpfs none /tmp && echo ready && while :; do sleep 3600; done"),
]

# A process is in its new pid namespace only after a fork; one in the background keeps no stdin.
_FORKED = 'exec 3<&0; "$@" <&3 3<&- & wait'


class OwnEngine:
    """An engine in namespaces of its own, which can be killed and started again there.

    Args:
        argv: its command line.
        address: where it listens, ``unix://``.
        log: takes what it prints.
        stdin: a socket that it is to listen on.
    """

    def __init__(
        self, argv: Sequence[str], address: str, log: Path, stdin: socket.socket | None = None
    ) -> None:
        self._argv = argv
        self._stdin = stdin
        self.address = address
        self._log = log
        # The first process there: all others end with it, those of containers too.
        self._first = subprocess.Popen(_APART, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        with cast(IO[bytes], self._first.stdout) as ready:
            assert ready.readline() == b"ready\n"
        (self._inside,) = _children(self._first.pid)
        self._engine: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        enter = ["nsenter", f"--target={self._inside}", *("--mount", "--net", "--pid", "--no-fork")]
        with self._log.open("ab") as log:
            self._engine = subprocess.Popen(
                [*enter, "sh", "-c", _FORKED, "sh", *self._argv],
                stdin=self._stdin.fileno() if self._stdin else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
            )
        wait_for(self._answers, lambda: f"an answer, after {self.said},", _WAIT_S)

    def _answers(self) -> bool:
        assert self._engine is not None
        assert self._engine.poll() is None, self.said
        with contextlib.suppress(OSError):
            ask(self.address, "/_ping", 5.0)
            return True
        return False

    @property
    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text()[-2000:]

    def kill(self) -> None:
        """Kill it and what it has started, but for containers."""
        assert self._engine is not None
        (engine,) = _children(self._engine.pid)
        found = [engine, *_children(engine)]
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        self._engine.wait()
        places = [Path(f"/proc/{pid}") for pid in found]
        wait_for(lambda: not any(map(Path.exists, places)), "the engine's end", _WAIT_S)

    def close(self) -> None:
        """End all of it. May be called again."""
        for process in (self._first, self._engine):
            if process is not None:
                process.kill()
                process.wait()


def imported() -> list[str]:
    """Folders that this process imports from, but for the interpreter's own."""
    return [
        path
        for path in sys.path
        if Path(path).is_dir() and (not path.startswith(sys.base_prefix) or "-packages" in path)
    ]


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for child in path.read_text().split()
    ]


@contextlib.contextmanager
def own_engine(
    name: str,
    argv: Callable[[Path, str], Sequence[str]],
    stdin: socket.socket | None = None,
) -> Iterator[OwnEngine]:
    """A second engine, in mount, network and process namespaces of its own.

    Args:
        argv: its command line, from a folder of its own and its address.
        stdin: a socket of this machine that it is to listen on.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"ale-{name}-", dir="/var/tmp"))
    address = f"unix://{folder}/socket"
    engine = OwnEngine(argv(folder, address), address, folder / "log", stdin)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()
        shutil.rmtree(folder, ignore_errors=True)


class ElsewhereProbes:
    """Needs two fixtures: ``plugin``, and ``own``: such an engine, which has the image
    `BUSYBOX`."""

    async def test_commands_files_and_copies_work(
        self, plugin: ModuleType, own: OwnEngine, tmp_path: Path
    ) -> None:
        await use(built(plugin, host=own.address, image=BUSYBOX), tmp_path)

    async def test_an_allow_list_of_hosts_is_refused(
        self, plugin: ModuleType, own: OwnEngine
    ) -> None:
        backend = built(plugin, host=own.address, image=BUSYBOX)
        engine: Any = backend._engine
        state = engine.state
        # As in another pid namespace: the number is that of a process of this machine's.
        engine.state = lambda container: evolve(state(container), pid=os.getpid())
        said = await refusal(backend, network=False, allowed_hosts=("example.com",))
        assert "engine's own machine" in said


async def use(backend: ContainerBackend, tmp_path: Path) -> None:
    """Use it for all that an episode needs, and close it."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"\0\xff")
    async with backend.open(SandboxSpec(network=False)) as box:
        result = await box.exec("cat; echo err >&2; exit 7", stdin=b"in")
        assert (result.exit_code, result.stdout, result.stderr) == (7, b"in", b"err\n")
        much = b"x" * (1 << 20)
        assert (await box.exec("cat", stdin=much, max_output_bytes=len(much))).stdout == much
        session = await box.session()
        assert (await session.run("cd /tmp; sleep 60 & echo $PWD")).stdout == b"/tmp\n"
        assert (await box.exec("sleep 60", timeout_s=0.3)).timed_out
        await box.upload(tmp_path / "folder", "up")
        assert await box.read("up/file") == b"\0\xff"
        await box.download("up", tmp_path / "down")
        assert (tmp_path / "down" / "file").read_bytes() == b"\0\xff"
        assert await box.end_processes() >= 2
        twin = await box.fork()
        assert await out(twin, "cat up/file | wc -c") == "2"
        await twin.close()
        ref = await box.snapshot()
        async with backend.restore(ref, SandboxSpec()) as restored:
            assert await out(restored, "cat up/file | wc -c") == "2"
    await backend.aclose()
    backend._engine.remove_image(f"ale-snapshot:{ref}")
    left = {info.id for info in await backend.list()}
    assert not left & {box.id, twin.id, ref}
