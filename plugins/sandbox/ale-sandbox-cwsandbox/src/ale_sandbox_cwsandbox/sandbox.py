"""One remote sandbox."""

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from attrs import frozen

from ale.errors import SandboxError, UnsupportedError
from ale.protocols import DEFAULT_OUTPUT_BYTES
from ale.types import Capabilities, ExecResult, SandboxSpec
from ale_sandbox_cwsandbox.files import Files
from ale_sandbox_cwsandbox.jobs import Jobs, Place, new_token
from ale_sandbox_cwsandbox.session import RemoteSession
from ale_sandbox_shell.text import NUL_REFUSED, as_bytes, quoted, refused

_SHELL = b"/bin/sh"


@frozen(kw_only=True)
class Setup:
    """What a sandbox gets from its backend."""

    id: str
    jobs: Jobs
    place: Place
    capabilities: Capabilities
    monotonic: Callable[[], float]
    release: Callable[[], Awaitable[None]]
    """Ends it."""
    sibling: Callable[[SandboxSpec], AbstractAsyncContextManager["RemoteSandbox"]]


class Opened:
    """Whether a sandbox is open; its jobs know it before the sandbox itself is made."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.closed = False

    def check(self) -> None:
        """Raise where it was closed."""
        if self.closed:
            raise SandboxError(f"sandbox {self.id} is closed")


class RemoteSandbox:
    """Runs commands as jobs. See `ale.protocols.Sandbox` for what each method promises."""

    def __init__(self, setup: Setup, opened: Opened) -> None:
        self._setup = setup
        self._opened = opened
        self._jobs = setup.jobs
        self._files = Files(jobs=setup.jobs, place=setup.place)
        self._sessions: list[RemoteSession] = []
        self._closing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The service's own."""
        return self._setup.id

    @property
    def workdir(self) -> str:
        """Absolute path of the workspace."""
        return self._setup.place.workdir

    @property
    def capabilities(self) -> Capabilities:
        """The backend's."""
        return self._setup.capabilities

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run one command. See `ale.protocols.Sandbox.exec`."""
        self._opened.check()
        if user is not None:
            raise UnsupportedError("cwsandbox: commands run as the sandbox's own user")
        words = [command] if isinstance(command, str) else list(command)
        if not words:
            raise ValueError("an empty argument vector")
        if "\0" in "".join((*words, cwd or "", *(env or {}), *(env or {}).values())):
            return refused(NUL_REFUSED)
        started = self._setup.monotonic()
        scripts: list[str] = []
        tokens: list[str] = []
        try:
            argv = await self._argv(command, env or {}, scripts)
            source = "/dev/null"
            if stdin is not None:
                source = self._jobs.path(new_token())
                scripts.append(source)
                await self._files.write(source, stdin, None)

            async def arguments(_: str) -> Sequence[str]:
                return [self._cwd(cwd), source, *argv]

            job = self._jobs.run("run", max_output_bytes, arguments, tokens)
            running = asyncio.ensure_future(job)
            outcome, timed_out = await self._jobs.limited(running, timeout_s, lambda: tokens[-1])
        finally:
            self._jobs.forget(*map(posixpath.basename, scripts))
        return outcome.result(timed_out=timed_out, duration_s=self._setup.monotonic() - started)

    async def _argv(
        self, command: str | Sequence[str], env: Mapping[str, str], scripts: list[str]
    ) -> Sequence[str]:
        """What to run; texts that can't be arguments go into files, added to `scripts`."""
        words = [as_bytes(f"{name}={value}") for name, value in env.items()]
        if words:
            words.insert(0, b"env")
        if isinstance(command, str):
            text = as_bytes(command)
            path = await self._jobs.argument(text)
            if path is not None:
                scripts.append(path)
                text = b". " + path.encode()
            words += [_SHELL, b"-c", text]
        else:
            # Through a shell, which says what is missing and ends with 127 as shells do.
            words += [_SHELL, b"-c", b'exec "$@"', b"sh", *map(as_bytes, command)]
        path = await self._jobs.argument(b"exec " + b" ".join(map(quoted, words)))
        if path is None:
            return [word.decode() for word in words]
        scripts.append(path)
        return ["/bin/sh", path]

    def _cwd(self, cwd: str | None) -> str:
        return self.workdir if cwd is None else posixpath.join(self.workdir, cwd)

    async def session(
        self, *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> RemoteSession:
        """Open a shell: bash where the image has one, else ``/bin/sh``."""
        self._opened.check()
        bash = self._setup.place.bash
        prefix = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
        shell = ["/bin/sh"] if bash is None else [bash, "--norc", "--noprofile"]
        tokens = [new_token()]
        try:
            state = await self._start_shell(tokens, [self._cwd(cwd), *prefix, *shell])
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._jobs.end(tokens[-1])))
            raise
        if state[0] != "ready":
            raise SandboxError(f"the shell has ended with {state[-1]} before its first command")
        session = RemoteSession(
            self._jobs, tokens[-1], resets_lines=bash is not None, monotonic=self._setup.monotonic
        )
        self._sessions = [*self.sessions, session]
        return session

    async def _start_shell(self, tokens: list[str], words: Sequence[str]) -> list[str]:
        """What has become of a shell; `tokens` gets another name where the last was never used."""
        while True:
            state, _ = await self._jobs.ask("shell", tokens[-1], *words)
            if state[0] == "lost":
                self._jobs.forget(tokens[-1])
                tokens.append(new_token())
            elif state[0] != "running":
                return state

    @property
    def sessions(self) -> Sequence[RemoteSession]:
        """Those that are open, the oldest first."""
        return [session for session in self._sessions if not session.closed]

    def open_sibling(self, spec: SandboxSpec) -> AbstractAsyncContextManager["RemoteSandbox"]:
        """Open another sandbox. See `ale.protocols.OpensSiblings`."""
        self._opened.check()
        return self._setup.sibling(spec)

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """A file's bytes."""
        self._opened.check()
        return await self._files.read(path, max_bytes)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a file whole, making its folders."""
        self._opened.check()
        await self._files.write(path, data, mode)

    async def upload(self, source: Path, target: str) -> None:
        """Copy a host file or folder in."""
        self._opened.check()
        await self._files.upload(source, target)

    async def download(self, source: str, target: Path) -> None:
        """Copy a file or folder out."""
        self._opened.check()
        await self._files.download(source, target)

    async def end_processes(self) -> int:
        """Kill every process but those that keep the sandbox; the number killed."""
        self._opened.check()
        killed = await self._jobs.end_all()
        for session in self.sessions:
            session.closed = True
        return killed

    async def fork(self) -> "RemoteSandbox":
        """Not possible."""
        raise UnsupportedError("cwsandbox: a sandbox can't be copied; starts replay its commands")

    async def snapshot(self) -> str:
        """Not possible."""
        raise UnsupportedError("cwsandbox: no snapshots are taken; starts replay the commands")

    async def close(self) -> None:
        """End the sandbox."""
        if self._closing is None:
            self._opened.closed = True
            for session in self._sessions:
                session.closed = True
            self._closing = asyncio.ensure_future(self._setup.release())
        await asyncio.shield(self._closing)
