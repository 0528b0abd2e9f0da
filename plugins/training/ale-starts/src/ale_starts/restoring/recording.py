"""A sandbox that records an agent's calls and their results until a start is reached."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from attrs import Factory, define, frozen

from ale.protocols import Sandbox, Session
from ale.sandboxes import ForwardingSandbox, ForwardingSession
from ale_starts.restoring.shell_state import ShellState

Request = tuple[Any, ...]
"""A method's name, the number of its session if it has one, and its arguments."""
_REPEATABLE = frozenset({"exec", "session", "read", "write"})
"""Other methods read or change the host, or end something that the agent must find."""


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

    async def record(
        self, request: Request, work: Awaitable[Any], session: Session | None = None
    ) -> Any:
        """Wait for a call and record it."""
        self.pending += 1
        try:
            result = await work
        except Exception as error:
            self.calls.append(Call(request, error=error, closed=_closed(session)))
            raise
        except BaseException:
            self.unrepeatable = "a command was cancelled"
            raise
        finally:
            self.pending -= 1
        self.calls.append(Call(request, result, closed=_closed(session)))
        return result


@define
class Opened:
    """A session of the recorded sandbox."""

    session: Session
    fresh: ShellState | None
    """Shell state before the first command; None if unreadable."""
    env: Mapping[str, str] | None
    cwd: str | None


class RecordingSandbox(ForwardingSandbox):
    """Wraps a real sandbox. Recording ends when `log` is set to None.

    Args:
        read: reads the shell state of a newly opened session.
    """

    def __init__(
        self, real: Sandbox, read: Callable[[Session], Awaitable[ShellState | None]]
    ) -> None:
        super().__init__(real)
        self.log: Log | None = Log()
        self.opened: list[Opened] = []
        self._read = read

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Record a call if it can be repeated; otherwise note that one was made."""
        work = super().call(method, *arguments, **options)
        if self.log is None:
            return await work
        if method not in _REPEATABLE:
            self.log.unrepeatable = f"the agent called {method}"
            return await work
        return await self.log.record(request_of(method, *arguments, **options), work)

    async def session(self, **options: Any) -> Session:
        """Open a session of the real sandbox; its calls are recorded too."""
        session = await super().session(**options)
        if self.log is None:
            return session
        opened = Opened(session, None, options.get("env"), options.get("cwd"))
        self.opened.append(opened)
        number = len(self.opened) - 1
        opened.fresh = await self._read(session)
        return RecordingSession(self, number, session)

    async def close(self) -> None:
        """Close the real sandbox."""
        if self.log is not None:
            self.log.unrepeatable = "the agent called close"
        await super().close()


class RecordingSession(ForwardingSession):
    """A session of a recorded sandbox."""

    def __init__(self, box: RecordingSandbox, number: int, real: Session) -> None:
        super().__init__(real)
        self._box = box
        self._number = number

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Record a call."""
        work, log = super().call(method, *arguments, **options), self._box.log
        if log is None:
            return await work
        request = request_of(method, self._number, *arguments, **options)
        return await log.record(request, work, self.real)


def request_of(method: str, *arguments: Any, **options: Any) -> Request:
    """A call as recorded, without its timeout: the result is known."""
    kept = {name: _copied(value) for name, value in options.items() if name != "timeout_s"}
    given = {name: value for name, value in kept.items() if value is not None and value != {}}
    return (method, *map(_copied, arguments), given)


def _copied(value: Any) -> Any:
    """A copy of a mapping or argument vector, which the caller may change; other values as is."""
    if isinstance(value, Mapping):
        return dict(value)
    vector = isinstance(value, Sequence) and not isinstance(value, str | bytes)
    return tuple(value) if vector else value


def _closed(session: Session | None) -> bool:
    return session is not None and session.closed
