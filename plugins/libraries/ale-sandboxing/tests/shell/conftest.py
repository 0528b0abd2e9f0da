"""A session over a shell of this machine, with named pipes for input and output."""

import asyncio
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ale_sandboxing.shell.capture import Capture
from ale_sandboxing.shell.channel import Lines, Writer
from ale_sandboxing.shell.output import Pump
from ale_sandboxing.shell.session import File, Outlet, ShellSession


class RealShell:
    """See `ale_sandboxing.shell.session.Shell`."""

    def __init__(self, program: str, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        self._folder = folder
        reader, writer = os.pipe()
        self._writer = Writer(writer)
        self._process = subprocess.Popen(
            [program],
            stdin=reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reader)
        self.report = os.fsencode(self._fifo("report"))
        descriptor = os.open(self.report, os.O_RDWR | os.O_NONBLOCK)
        self.on_line: Callable[[bytes], object] = lambda _: None
        self.lines = Lines(descriptor, lambda line: self.on_line(line))
        self.ended: asyncio.Future[int] = loop.create_future()
        self._watch = loop.create_task(self._wait())
        self.session = ShellSession(
            self,
            resets_lines="bash" in program,
            monotonic=time.perf_counter,
        )

    def _fifo(self, name: str) -> Path:
        os.mkfifo(self._folder / name)
        return self._folder / name

    async def _wait(self) -> None:
        code = await asyncio.to_thread(self._process.wait)
        self.ended.set_result(code if code >= 0 else 128 - code)

    def send(self, script: bytes) -> None:
        self._writer.send(script)

    def outlet(self, limit: int) -> Outlet:
        path = self._fifo(secrets.token_hex(8))
        pump = Pump(os.open(path, os.O_RDONLY | os.O_NONBLOCK), limit)
        return Outlet(pump=pump, path=os.fsencode(path), release=path.unlink)

    def script(self, text: bytes) -> File:
        path = self._folder / secrets.token_hex(8)
        path.write_bytes(text)
        return File(path=os.fsencode(path), release=path.unlink)

    def finish(self, pump: Pump) -> Capture:
        return pump.finish(lambda _: None)

    async def end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, 9)
        await self._watch
        self._writer.close()
        self.lines.close()


@pytest.fixture(params=["/bin/sh", "bash", "busybox"])
async def session(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ShellSession]:
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"{request.param} is not installed")
    if request.param == "busybox":
        (tmp_path / "sh").symlink_to(program)
        program = str(tmp_path / "sh")
    shell = RealShell(program, tmp_path)
    shell.session.start()
    yield shell.session
    await shell.end()
