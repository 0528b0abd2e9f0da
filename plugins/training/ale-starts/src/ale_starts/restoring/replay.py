"""A forked sandbox that answers from a recording until the start, and by itself afterwards."""

import copy
from collections.abc import Sequence
from typing import Any

from ale.errors import ReplayError, SandboxError
from ale.protocols import Sandbox, Session
from ale.sandboxes import ForwardingSandbox, ForwardingSession
from ale_starts.restoring.recording import Call, Request, request_of

_EXCERPT = 200


class ReplayingFork(ForwardingSandbox):
    """Wraps a fork. While `live` is False, each call must equal the next recorded one.

    Args:
        sessions: the fork's sessions by number, as at the end of the recording; None for a
            session that had ended by then.
    """

    def __init__(
        self, real: Sandbox, calls: Sequence[Call], sessions: Sequence[Session | None]
    ) -> None:
        super().__init__(real)
        self.live = False
        self.sessions = sessions
        self._calls = calls
        self._next = 0
        self._opened = 0

    def arrive(self) -> None:
        """From now on, let the fork answer calls.

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
        """Check a call against the next recorded one, and return the recorded call.

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

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """The recorded result, or the fork's. Before the start, other methods are refused."""
        if self.live:
            return await super().call(method, *arguments, **options)
        outcome = outcome_of(self.answer(request_of(method, *arguments, **options)))
        if method != "session":
            return outcome
        self._opened += 1
        return ReplayingSession(self, self._opened - 1)


class ReplayingSession(ForwardingSession):
    """A session that answers from the recording, and from the fork's session afterwards."""

    def __init__(self, box: ReplayingFork, number: int) -> None:
        self._box = box
        self._number = number
        self._ended = False
        """Whether the shell has ended, according to the recording."""

    @property
    def _live(self) -> Session | None:
        return self._box.sessions[self._number] if self._box.live else None

    @property
    def closed(self) -> bool:
        """True once the shell has ended."""
        return self._ended if self._live is None else self._live.closed

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """The recorded result, or the fork's."""
        if self._live is not None:
            return await getattr(self._live, method)(*arguments, **options)
        if self._box.live:  # the session had ended by the start
            if method == "close":
                return None
            raise SandboxError("the session is closed")
        call = self._box.answer(request_of(method, self._number, *arguments, **options))
        self._ended = call.closed
        return outcome_of(call)


def outcome_of(call: Call) -> Any:
    """The result of a recorded call; raises its error."""
    if call.error is not None:
        raise copy.copy(call.error)
    return call.result


def _excerpt(request: Request) -> str:
    text = f"{request[0]}{request[1:]!r}"
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."
