"""A sandbox that records an agent's calls and their results until a start is reached."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attrs import Factory, define, frozen

from ale.protocols import DEFAULT_OUTPUT_BYTES, Sandbox, Session
from ale.types import Capabilities, ExecResult
from ale_starts.restoring.shell_state import ShellState

T = TypeVar("T")

Request = tuple[Any, ...]
"""A method's name, the number of its session where it has one, and its arguments."""


@frozen
class Call:
    """A recorded call and its outcome."""

    request: Request
    result: Any = None
    error: Exception | None = None
    closed: bool = False
    """Had the session ended after the call?"""


@define
class Log:
    """The calls in order."""

    calls: list[Call] = Factory(list)
    pending: int = 0
    """Calls in progress."""
    unrepeatable: str = ""
    """Why the log can't replace the calls; empty if it can."""


@define
class Opened:
    """A session of the recorded sandbox."""

    session: Session
    fresh: ShellState | None
    """Shell state before the first command; None if unreadable."""
    env: Mapping[str, str] | None
    cwd: str | None


class RecordingSandbox:
    """Wraps a real sandbox. Recording ends when `log` is set to None.

    Args:
        read: reads the shell state of a newly opened session.
    """

    def __init__(
        self, real: Sandbox, read: Callable[[Session], Awaitable[ShellState | None]]
    ) -> None:
        self.log: Log | None = Log()
        self.opened: list[Opened] = []
        self.real = real
        self._read = read

    @property
    def id(self) -> str:
        """The real one's."""
        return self.real.id

    @property
    def workdir(self) -> str:
        """The real one's."""
        return self.real.workdir

    @property
    def capabilities(self) -> Capabilities:
        """The real one's."""
        return self.real.capabilities

    async def _record(
        self, request: Request, work: Awaitable[T], session: Session | None = None
    ) -> T:
        log = self.log
        if log is None:
            return await work
        log.pending += 1
        try:
            result = await work
        except Exception as error:
            log.calls.append(Call(request, error=error, closed=_closed(session)))
            raise
        except BaseException:
            log.unrepeatable = "a command was cancelled"
            raise
        finally:
            log.pending -= 1
        log.calls.append(Call(request, result, closed=_closed(session)))
        return result

    def _unrepeatable(self, what: str) -> None:
        if self.log is not None:
            self.log.unrepeatable = f"the agent called {what}"

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
        """As the real one's."""
        request = exec_request(command, stdin, env, cwd, user, max_output_bytes)
        work = self.real.exec(
            command,
            timeout_s=timeout_s,
            stdin=stdin,
            env=env,
            cwd=cwd,
            user=user,
            max_output_bytes=max_output_bytes,
        )
        return await self._record(request, work)

    async def session(
        self, *, env: Mapping[str, str] | None = None, cwd: str | None = None
    ) -> Session:
        """As the real one's."""
        request = ("session", dict(env or {}), cwd)
        session = await self._record(request, self.real.session(env=env, cwd=cwd))
        if self.log is None:
            return session
        number = len(self.opened)
        self.opened.append(Opened(session, None, env, cwd))
        self.opened[number].fresh = await self._read(session)
        return RecordingSandboxSession(self, number, session)

    async def read(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """As the real one's."""
        return await self._record(
            ("read", path, max_bytes), self.real.read(path, max_bytes=max_bytes)
        )

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """As the real one's."""
        await self._record(("write", path, data, mode), self.real.write(path, data, mode=mode))

    async def upload(self, source: Path, target: str) -> None:
        """As the real one's. Can't be replayed: it reads the host."""
        self._unrepeatable("upload")
        await self.real.upload(source, target)

    async def download(self, source: str, target: Path) -> None:
        """As the real one's. Can't be replayed: it changes the host."""
        self._unrepeatable("download")
        await self.real.download(source, target)

    async def end_processes(self) -> int:
        """As the real one's."""
        self._unrepeatable("end_processes")
        return await self.real.end_processes()

    async def fork(self) -> Sandbox:
        """As the real one's."""
        self._unrepeatable("fork")
        return await self.real.fork()

    async def snapshot(self) -> str:
        """As the real one's."""
        self._unrepeatable("snapshot")
        return await self.real.snapshot()

    async def close(self) -> None:
        """As the real one's."""
        self._unrepeatable("close")
        await self.real.close()


class RecordingSandboxSession:
    """A session of a recorded sandbox."""

    def __init__(self, box: RecordingSandbox, number: int, real: Session) -> None:
        self._box = box
        self._number = number
        self._real = real

    @property
    def closed(self) -> bool:
        """The real one's."""
        return self._real.closed

    async def run(
        self,
        command: str,
        *,
        timeout_s: float | None = None,
        max_output_bytes: int = DEFAULT_OUTPUT_BYTES,
    ) -> ExecResult:
        """As the real one's."""
        work = self._real.run(command, timeout_s=timeout_s, max_output_bytes=max_output_bytes)
        request = ("run", self._number, command, max_output_bytes)
        return await self._box._record(request, work, self._real)

    async def close(self) -> None:
        """As the real one's."""
        await self._box._record(("close", self._number), self._real.close(), self._real)


def exec_request(
    command: str | Sequence[str],
    stdin: bytes | None,
    env: Mapping[str, str] | None,
    cwd: str | None,
    user: str | None,
    max_output_bytes: int,
) -> Request:
    """An `exec` as recorded, without its timeout: the result is known."""
    argument = command if isinstance(command, str) else tuple(command)
    return ("exec", argument, stdin, dict(env or {}), cwd, user, max_output_bytes)


def _closed(session: Session | None) -> bool:
    return session is not None and session.closed
