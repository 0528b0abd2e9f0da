"""A shell that lasts from command to command."""

import asyncio
import posixpath
from collections.abc import Callable, Sequence

from ale.errors import SandboxError
from ale.protocols import DEFAULT_OUTPUT_BYTES
from ale.sandboxes import NUL_IN_COMMAND, refused
from ale.types import ExecResult, replace
from ale_sandboxing.remote.jobs import Jobs, Outcome
from ale_sandboxing.shell.session import File, frame
from ale_sandboxing.shell.text import as_bytes


class RemoteSession:
    """One shell. Commands run one after the other; a second caller waits for the first.

    Args:
        token: of the job that is the shell.
        resets_lines: it is bash, where ``LINENO=0`` makes line numbers the command's own.
        note: what the first command's stderr begins with.
    """

    def __init__(
        self,
        jobs: Jobs,
        token: str,
        *,
        resets_lines: bool,
        monotonic: Callable[[], float],
        note: bytes = b"",
    ) -> None:
        self._note = note
        self._jobs = jobs
        self._token = token
        self._prefix = b"LINENO=0;" if resets_lines else b""
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._last = 0
        self.closed = False

    async def run(
        self,
        command: str,
        *,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Run one command in the shell. See `ale.protocols.Session.run`."""
        async with self._lock:
            if self.closed:
                raise SandboxError("the session is closed")
            if "\0" in command:
                return refused(NUL_IN_COMMAND)
            started = self._monotonic()
            running = asyncio.ensure_future(self._run(as_bytes(command), max_output_bytes))
            try:
                outcome, timed_out = await self._jobs.limited(
                    running, timeout_s, lambda: self._token
                )
            except asyncio.CancelledError:
                self.closed = True
                raise
            self._last = outcome.code
            self.closed = self.closed or outcome.ended
            took = self._monotonic() - started
            result = outcome.result(timed_out=timed_out, duration_s=took)
            note, self._note = self._note, b""
            return replace(result, stderr=note + result.stderr) if note else result

    async def _run(self, command: bytes, limit: int) -> Outcome:
        # The shell reads a pipe byte by byte and a file in one go.
        text = await self._jobs.argument(command)
        source = command if text is None else File(path=text.encode(), release=lambda: None)
        scripts = [] if text is None else [text]

        async def words(token: str) -> Sequence[str]:
            script = self._prefix + frame(
                source,
                token=token.encode(),
                out=self._path(token, "o"),
                err=self._path(token, "e"),
                report=self._path(token, "r"),
                last=self._last,
            )
            path = await self._jobs.argument(script)
            if path is None:
                return [self._token, script.decode()]
            scripts.append(path)
            return [self._token, f"@{path}"]

        try:
            return await self._jobs.run("step", limit, words, [])
        finally:
            self._jobs.forget(*(posixpath.basename(path) for path in scripts))

    def _path(self, token: str, name: str) -> bytes:
        return self._jobs.path(f"{token}/{name}").encode()

    async def close(self) -> None:
        """End the shell and what it started. May be called again."""
        if not self.closed:
            self.closed = True
            await self._jobs.end(self._token)
            self._jobs.forget(self._token)
