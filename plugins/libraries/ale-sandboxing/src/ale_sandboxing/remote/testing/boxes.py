"""Sandboxes of a fake service: real commands, in bubblewrap."""

import asyncio
import contextlib
import json
import os
import signal
import struct
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

RUNNER = Path(__file__).with_name("runner.py")
STDOUT, STDERR, FAILED = 1, 2, 3


class BoxGoneError(Exception):
    """The sandbox has ended."""


class Box:
    """One sandbox: a folder, and processes in namespaces of their own.

    Args:
        folder: for the folders of all sandboxes.
        starts_in_s: seconds until it counts as running.
        memory: bytes of address space for each command; 0 for no limit.
    """

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str],
        *,
        connected: bool,
        memory: int = 0,
        starts_in_s: float = 0.0,
    ) -> None:
        self.id = f"sb-{uuid.uuid4().hex[:12]}"
        self.created = time.time()
        self.gone = False
        self._folder = folder / self.id
        self._env = env
        self._connected = connected
        self._memory = memory
        self._running_from = time.monotonic() + starts_in_s
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it."""
        (self._folder / "runner").mkdir(parents=True)
        root = self._folder / "root"
        for name in ("tmp", "root", "run"):
            (root / name).mkdir(parents=True)
        info, info_writer = os.pipe()
        self._process = await asyncio.create_subprocess_exec(
            "bwrap",
            *("--die-with-parent", "--unshare-all", "--uid", "0", "--gid", "0"),
            *("--info-fd", str(info_writer), *(("--share-net",) if self._connected else ())),
            *("--bind", str(root), "/", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"),
            *(word for name in ("bin", "sbin", "lib", "lib64") for word in _top(name)),
            *("--ro-bind", sys.base_prefix, sys.base_prefix, "--ro-bind", str(RUNNER), "/runner"),
            *("--proc", "/proc", "--dev", "/dev", "--bind", str(self._folder / "runner"), "/run"),
            *(sys.base_prefix + "/bin/python3", "-I", "-S", "/runner", "/run/socket"),
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", **self._env},
            pass_fds=[info_writer],
        )
        os.close(info_writer)
        with os.fdopen(info) as info_file:
            self._first = int(json.load(info_file)["child-pid"])
        while not (self._folder / "runner" / "socket").exists():
            if self._process.returncode is not None:
                raise RuntimeError("bwrap has ended")
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        """End it, and wait until nothing of it runs."""
        self.gone = True
        if self._process is None:
            return
        if self._process.returncode is None:
            # The first of its namespace: it is gone when all others are.
            os.kill(self._first, signal.SIGKILL)
        await self._process.wait()
        while Path(f"/proc/{self._first}").exists():  # noqa: ASYNC110, ASYNC240  nothing tells
            await asyncio.sleep(0.01)

    @property
    def running(self) -> bool:
        """Has it started, and not ended?"""
        return (
            not self.gone and self._process is not None and time.monotonic() >= self._running_from
        )

    async def execute(self, argv: list[str]) -> AsyncIterator[tuple[int, bytes]]:
        """Run a command: what it prints, by stream, then 0 and its exit code, or `FAILED`.

        Raises:
            BoxGoneError: before its end.
        """
        async with self._asked(do="exec", argv=argv, memory=self._memory) as reader:
            kind = STDOUT
            while kind in (STDOUT, STDERR):
                kind, data = await _message(reader)
                yield kind, data

    async def file(self, data: bytes = b"", **request: Any) -> tuple[int, bytes]:
        """Read or write a file: its content, or `FAILED` and the name of Python's error."""
        async with self._asked(data, **request) as reader:
            return await _message(reader)

    @contextlib.asynccontextmanager
    async def _asked(
        self, data: bytes = b"", **request: Any
    ) -> AsyncIterator[asyncio.StreamReader]:
        path = str(self._folder / "runner" / "socket")
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
        with contextlib.closing(writer):
            writer.write(json.dumps(request).encode() + b"\n" + data)
            await writer.drain()
            yield reader


async def _message(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    try:
        kind, size = struct.unpack(">BI", await reader.readexactly(5))
        return kind, await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        raise BoxGoneError from error


def exit_code(data: bytes) -> int:
    """Of the last message of a command."""
    code: int = struct.unpack(">i", data)[0]
    return code


def _top(name: str) -> tuple[str, ...]:
    path = Path("/") / name
    if path.is_symlink():
        return ("--symlink", str(path.readlink()), f"/{name}")
    return ("--ro-bind", f"/{name}", f"/{name}") if path.exists() else ()
