# ruff: noqa: D102, PT017 - a name says what a test does; no test framework is imported here
"""An engine that sees no file, process or network of this machine's: as in a virtual machine."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from attrs import evolve

from ale.errors import UnsupportedError
from ale.plugin import BuildContext
from ale.types import SandboxSpec
from ale_sandbox_container.probing import ask
from ale_sandbox_container.testing.tools import out
from ale_sandbox_container.testing_images import BUSYBOX

_WAIT_S = 60.0
_HIDDEN = 'mount -t tmpfs none /tmp && exec "$@"'
"""Its /tmp is empty."""


@contextlib.contextmanager
def engine_elsewhere(name: str, argv: Callable[[Path, str], Sequence[str]]) -> Iterator[str]:
    """Address of a second engine, in mount and network namespaces of its own.

    Args:
        argv: its command line, from a folder of its own and its address.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"ale-{name}-", dir="/var/tmp"))
    address = f"unix://{folder}/socket"
    apart = ["unshare", "--mount", "--net", "sh", "-c", _HIDDEN, "sh"]
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(
            [*apart, *argv(folder, address)], stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait_for(engine, address, folder / "log")
        yield address
    finally:
        engine.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            engine.wait(_WAIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(engine.pid, signal.SIGKILL)
        engine.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(engine: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            ask(address, "/_ping", 5.0)
        except OSError:
            assert engine.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.2)
        else:
            return


class ElsewhereProbes:
    """Needs two fixtures: ``plugin``, and ``elsewhere``: the address of such an engine, which has
    the image `BUSYBOX`."""

    async def test_commands_files_and_copies_work(
        self, plugin: ModuleType, elsewhere: str, tmp_path: Path
    ) -> None:
        options = plugin.ale_sandboxes()[0].options(host=elsewhere, image=BUSYBOX)
        backend = plugin.build(options, BuildContext())
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "file").write_bytes(b"\0\xff")
        async with backend.open(SandboxSpec(network=False)) as box:
            result = await box.exec("cat; echo err >&2; exit 7", stdin=b"in")
            assert (result.exit_code, result.stdout, result.stderr) == (7, b"in", b"err\n")
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
        assert [*await backend.list()] == []

    async def test_an_allow_list_of_hosts_is_refused(
        self, plugin: ModuleType, elsewhere: str
    ) -> None:
        options = plugin.ale_sandboxes()[0].options(host=elsewhere, image=BUSYBOX)
        backend = plugin.build(options, BuildContext())
        state = backend._engine.state
        # As in another pid namespace: the number is that of a process of this machine's.
        backend._engine.state = lambda container: evolve(state(container), pid=os.getpid())
        try:
            async with backend.open(SandboxSpec(network=False, allowed_hosts=("example.com",))):
                raise AssertionError("it was opened")
        except UnsupportedError as error:
            assert "engine's own machine" in str(error)
        await backend.aclose()
