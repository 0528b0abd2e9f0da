"""A forked sandbox that answers from a recording until the start, and itself afterwards."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ale.errors import ReplayError, SandboxError
from ale.protocols import DEFAULT_OUTPUT_BYTES, Sandbox, Session
from ale.types import Capabilities, ExecResult
from ale_starts.restoring.recording import Call, Request, exec_request

_EXCERPT = 200


class ReplayingFork:
    """Wraps a fork. While `live` is False, each call must equal the next recorded one.

    Args:
        sessions: of the fork, as at the end of the recording, by number; None for a session
            that had ended by then.
    """

    def __init__(
        self, real: Sandbox, calls: Sequence[Call], sessions: Sequence[Session | None]
    ) -> None:
        self.live = False
        self.real = real
        self.sessions = sessions
        self._calls = calls
        self._next = 0
        self._opened = 0

    @property
    def id(self) -> str:
        """The fork's."""
        return self.real.id

    @property
    def workdir(self) -> str:
        """The fork's, which is also that of the recording."""
        return self.real.workdir

    @property
    def capabilities(self) -> Capabilities:
        """The fork's."""
        return self.real.capabilities

    def arrive(self) -> None:
        """Answer calls by the fork from now on.

        Raises:
            ReplayError: recorded calls are missing.
        """
        if self._next < len(self._calls):
            raise ReplayError(
                f"the agent did not repeat a call of an earlier rollout of this start: "
                f"{_excerpt(self._calls[self._next].request)} is missing"
            )
        self.live = True

    def answer(self, request: Request) -> Call:
        """Check a call against the next recorded one, and return that.

        Raises:
            ReplayError: it differs.
        """
        call = self._calls[self._next] if self._next < len(self._calls) else None
        if call is None or call.request != request:
            recorded = "nothing more" if call is None else _excerpt(call.request)
            raise ReplayError(
                "the agent made another call than in an earlier rollout of this start\n"
                f"recorded  {recorded}\nfound     {_excerpt(request)}"
            )
        self._next += 1
        return call

    def _refuse(self, what: str) -> NoReturn:
        self.answer((what,))
        raise AssertionError("no recording holds this")

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
        """Recorded result, or the fork's."""
        if not self.live:
            request = exec_request(command, stdin, env, cwd, user, max_output_bytes)
            result: ExecResult = outcome_of(self.answer(request))
            return result
        return await self.real.exec(
            command,
            timeout_s=timeout_s,
            stdin=stdin,
            env=env,
            cwd=cwd,
            user=user,
            max_output_bytes=max_output_bytes,
        )

    async def session(
        self, *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> Session:
        """The restored session, or a new one of the fork."""
        if self.live:
            return await self.real.session(env=env, cwd=cwd)
        outcome_of(self.answer(("session", dict(env or {}), cwd)))
        self._opened += 1
        return ReplayingForkSession(self, self._opened - 1)

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """Recorded result, or the fork's."""
        if not self.live:
            data: bytes = outcome_of(self.answer(("read", path, max_bytes)))
            return data
        return await self.real.read(path, max_bytes=max_bytes)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Recorded result, or the fork's."""
        if not self.live:
            outcome_of(self.answer(("write", path, data, mode)))
        else:
            await self.real.write(path, data, mode=mode)

    async def upload(self, source: Path, target: str) -> None:
        """The fork's."""
        if not self.live:
            self._refuse("upload")
        await self.real.upload(source, target)

    async def download(self, source: str, target: Path) -> None:
        """The fork's."""
        if not self.live:
            self._refuse("download")
        await self.real.download(source, target)

    async def end_processes(self) -> int:
        """The fork's. Refused before the start: an agent that ends there must not be graded on it.

        Raises:
            ReplayError: the start has not been reached.
        """
        if not self.live:
            self._refuse("end_processes")
        return await self.real.end_processes()

    async def fork(self) -> Sandbox:
        """The fork's."""
        if not self.live:
            self._refuse("fork")
        return await self.real.fork()

    async def snapshot(self) -> str:
        """The fork's."""
        if not self.live:
            self._refuse("snapshot")
        return await self.real.snapshot()

    async def close(self) -> None:
        """The fork's."""
        await self.real.close()


class ReplayingForkSession:
    """A session that answers from the recording, and from the fork's session afterwards."""

    def __init__(self, box: ReplayingFork, number: int) -> None:
        self._box = box
        self._number = number
        self._ended = False
        """According to the recording."""

    @property
    def _real(self) -> Session | None:
        return self._box.sessions[self._number] if self._box.live else None

    @property
    def closed(self) -> bool:
        """True once the shell has ended."""
        return self._ended if self._real is None else self._real.closed

    async def run(
        self,
        command: str,
        *,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """Recorded result, or the fork's."""
        if self._real is not None:
            return await self._real.run(
                command, timeout_s=timeout_s, max_output_bytes=max_output_bytes
            )
        if self._box.live:
            raise SandboxError("the session is closed")
        call = self._box.answer(("run", self._number, command, max_output_bytes))
        self._ended = call.closed
        result: ExecResult = outcome_of(call)
        return result

    async def close(self) -> None:
        """Recorded result, or the fork's."""
        if self._real is not None:
            await self._real.close()
        elif not self._box.live:
            self._ended = self._box.answer(("close", self._number)).closed


def outcome_of(call: Call) -> Any:
    """The result of a recorded call; raises its error."""
    if call.error is not None:
        raise copy.copy(call.error)
    return call.result


def _excerpt(request: Request) -> str:
    text = f"{request[0]}{request[1:]!r}"
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."
