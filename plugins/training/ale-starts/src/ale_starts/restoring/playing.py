"""A fork that answers an agent from a recording until the start is reached, and then for itself."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ale.errors import ReplayError, SandboxError
from ale.protocols import DEFAULT_OUTPUT_BYTES, Sandbox, Session
from ale.types import Capabilities, ExecResult
from ale_starts.restoring.recording import Asked, Call, asked_exec

_EXCERPT = 200


class Played:
    """Wraps a fork. As long as `live` is False, each call must be the recording's next one.

    Args:
        sessions: of the fork, as they were at the recording's end, by number; None where a
            session had ended by then.
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
        """From now on the fork itself answers.

        Raises:
            ReplayError: the agent has done less than in the recording.
        """
        if self._next < len(self._calls):
            raise ReplayError(
                f"the agent has not done what it did in another rollout of this start: "
                f"{_excerpt(self._calls[self._next].asked)} was not called"
            )
        self.live = True

    def answer(self, asked: Asked) -> Call:
        """The recording's next call.

        Raises:
            ReplayError: it is another one.
            Exception: what the call raised there.
        """
        call = self._calls[self._next] if self._next < len(self._calls) else None
        if call is None or call.asked != asked:
            recorded = "nothing more" if call is None else _excerpt(call.asked)
            raise ReplayError(
                "the agent has done something else than in another rollout of this start\n"
                f"recorded  {recorded}\nfound     {_excerpt(asked)}"
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
        """As recorded, or the fork's."""
        if not self.live:
            asked = asked_exec(command, stdin, env, cwd, user, max_output_bytes)
            result: ExecResult = given(self.answer(asked))
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
        """One of those that were opened with the fork, or a new one of the fork's."""
        if self.live:
            return await self.real.session(env=env, cwd=cwd)
        given(self.answer(("session", dict(env or {}), cwd)))
        self._opened += 1
        return PlayedSession(self, self._opened - 1)

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """As recorded, or the fork's."""
        if not self.live:
            data: bytes = given(self.answer(("read", path, max_bytes)))
            return data
        return await self.real.read(path, max_bytes=max_bytes)

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """As recorded, or the fork's."""
        if not self.live:
            given(self.answer(("write", path, data, mode)))
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
        """The fork's. An agent that ends before the start is refused here: the files are not its.

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


class PlayedSession:
    """A session of the recording, which goes on in the fork's."""

    def __init__(self, box: Played, number: int) -> None:
        self._box = box
        self._number = number
        self._ended = False
        """As the recording says."""

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
        """As recorded, or the fork's."""
        if self._real is not None:
            return await self._real.run(
                command, timeout_s=timeout_s, max_output_bytes=max_output_bytes
            )
        if self._box.live:
            raise SandboxError("the session is closed")
        call = self._box.answer(("run", self._number, command, max_output_bytes))
        self._ended = call.closed
        result: ExecResult = given(call)
        return result

    async def close(self) -> None:
        """As recorded, or the fork's."""
        if self._real is not None:
            await self._real.close()
        elif not self._box.live:
            self._ended = self._box.answer(("close", self._number)).closed


def given(call: Call) -> Any:
    """What a call of the recording gave, or raised."""
    if call.raised is not None:
        raise copy.copy(call.raised)
    return call.gave


def _excerpt(asked: Asked) -> str:
    text = f"{asked[0]}{asked[1:]!r}"
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."
