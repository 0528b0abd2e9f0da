"""One remote sandbox."""

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from ale.errors import SandboxDamagedError, SandboxError
from ale.sandboxes import BaseSandbox, Command
from ale.types import Capabilities, ExecResult, SandboxSpec
from ale_sandboxing.remote.files import Files
from ale_sandboxing.remote.jobs import Jobs, Place, new_token
from ale_sandboxing.remote.session import RemoteSession
from ale_sandboxing.shell.text import as_bytes, quoted

_SHELL = b"/bin/sh"


class RemoteSandbox(BaseSandbox):
    """Runs commands as jobs. See `ale.protocols.Sandbox` for what each method promises.

    Args:
        open_another: opens a sandbox of the same service.
        remove: ends this one.
    """

    def __init__(
        self,
        id: str,
        capabilities: Capabilities,
        jobs: Jobs,
        place: Place,
        *,
        monotonic: Callable[[], float],
        open_another: Callable[[SandboxSpec], AbstractAsyncContextManager["RemoteSandbox"]],
        remove: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(id, place.workdir, capabilities, Files(jobs=jobs, place=place))
        self._monotonic, self._open_another, self._remove = monotonic, open_another, remove
        self._jobs = jobs
        self._bash = place.bash
        self._sessions: list[RemoteSession] = []

    async def execute(self, command: Command) -> ExecResult:
        """Run one command. See `ale.protocols.Sandbox.exec`."""
        started = self._monotonic()
        scripts: list[str] = []
        tokens: list[str] = []
        try:
            argv = await self._argv(command.command, command.env, scripts)
            source = "/dev/null"
            if command.stdin is not None:
                source = self._jobs.path(new_token())
                scripts.append(source)
                await self.files.write(source, command.stdin, None)

            async def arguments(_: str) -> Sequence[str]:
                return [self._cwd(command.cwd), source, *argv]

            job = self._jobs.run("run", command.max_output_bytes, arguments, tokens)
            running = asyncio.ensure_future(job)
            outcome, timed_out = await self._jobs.limited(
                running, command.timeout_s, lambda: tokens[-1]
            )
        finally:
            self._jobs.forget(*map(posixpath.basename, scripts))
        return outcome.result(timed_out=timed_out, duration_s=self._monotonic() - started)

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

    async def open_session(self, env: Mapping[str, str], cwd: str | None) -> RemoteSession:
        """Open a shell: bash where the image has one, else ``/bin/sh``."""
        bash = self._bash
        prefix = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
        shell = ["/bin/sh"] if bash is None else [bash, "--norc", "--noprofile"]
        words, note = [*prefix, *shell], b""
        token, state = await self._opened([self._cwd(cwd), *words])
        if state[0] != "ready" and cwd is None:
            note = f"can't enter {self.workdir} any more; this shell is in /\n".encode()
            token, state = await self._opened(["/", *words])
            if state[0] != "ready":
                raise SandboxDamagedError(
                    f"sandbox {self.id} starts no shell any more: it has ended with {state[-1]}"
                )
        if state[0] != "ready":
            raise SandboxError(f"the shell has ended with {state[-1]} before its first command")
        session = RemoteSession(
            self._jobs,
            token,
            resets_lines=bash is not None,
            monotonic=self._monotonic,
            note=note,
        )
        self._sessions = [*self.sessions, session]
        return session

    async def _opened(self, words: Sequence[str]) -> tuple[str, list[str]]:
        """The token of a shell that was asked for, and what has become of it."""
        tokens = [new_token()]
        try:
            state = await self._start_shell(tokens, words)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._jobs.end(tokens[-1])))
            raise
        return tokens[-1], state

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
        self.check_open()
        return self._open_another(spec)

    async def end_processes(self) -> int:
        """Kill every process but those that keep the sandbox; the number killed."""
        self.check_open()
        killed = await self._jobs.end_all()
        for session in self.sessions:
            session.closed = True
        return killed

    async def release(self) -> None:
        """End the sandbox."""
        self._jobs.closed = True
        for session in self._sessions:
            session.closed = True
        await self._remove()
