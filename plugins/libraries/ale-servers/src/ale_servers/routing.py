"""Which server of a pool gets a request."""

import asyncio
from collections import OrderedDict, deque
from typing import Literal

from attrs import define, field

from ale_servers.protocol import InferenceServer
from ale_servers.records import Entry, ServerStatus

_MOST_SESSIONS = 65536
State = Literal["ready", "behind", "refused", "down"]
"""``behind``: it has weights of this run, but not the present ones."""


@define(eq=False)
class Member:
    """A server of the pool."""

    entry: Entry
    server: InferenceServer
    state: State = "down"
    reason: str = "not asked yet"
    status: ServerStatus | None = None
    in_flight: int = 0
    """Number of requests of this pool."""
    others: int = 0
    """Number of other clients' requests when the server was last asked."""
    asked: set[str] = field(factory=set)
    """Ids of requests of this pool."""
    held: bool = False
    """This run holds the server: no other one gives it weights."""
    settled: bool = False
    """It has had the weights of this run."""
    taken: str = ""
    """Which run has taken the server from this one; empty if none has."""
    catching_up: "asyncio.Task[None] | None" = None
    """Brings the server an update that it has missed."""

    @property
    def load(self) -> float:
        """Requests per row of the server's batch."""
        rows = 1 if self.status is None else max(1, self.status.max_running)
        return (self.in_flight + self.others) / rows

    @property
    def has_room(self) -> bool:
        """A server always has the next requests at hand, but no more: what is queued there can't be
        given to another server."""
        return self.load < 2


class Router:
    """Assigns requests to the servers that are ready: those of one session to one server, for its
    prefix cache, and otherwise to the least loaded one.
    """

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        """By URL."""
        self._sessions: OrderedDict[str, Member] = OrderedDict()
        self._waiting: deque[asyncio.Future[Member]] = deque()

    async def acquire(self, session: str) -> Member:
        """The session's server, or else the least loaded one, as soon as one has room."""
        member = self._sessions.get(session)
        if member is None or member.state != "ready" or not member.has_room:
            member = self._least_loaded()
            if member is None:
                future: asyncio.Future[Member] = asyncio.get_running_loop().create_future()
                self._waiting.append(future)
                try:
                    member = await future
                except asyncio.CancelledError:
                    if future.done() and not future.cancelled():
                        self.release(future.result())
                    raise
                member.in_flight -= 1  # reserved by `hand_out`
        member.in_flight += 1
        self._sessions[session] = member
        self._sessions.move_to_end(session)
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return member

    def forget(self, session: str) -> None:
        """The next request of a session is sent to the least loaded server."""
        self._sessions.pop(session, None)

    def release(self, member: Member) -> None:
        """A request of this server has ended."""
        member.in_flight -= 1
        self.hand_out()

    def _least_loaded(self) -> Member | None:
        ready = [each for each in self.members.values() if each.state == "ready"]
        return min(
            (each for each in ready if each.has_room), key=lambda each: each.load, default=None
        )

    def refuse(self, error: Exception) -> None:
        """No server will ever be assigned to the waiting requests."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(error)

    def hand_out(self) -> None:
        """Assign servers to waiting requests, in order."""
        while self._waiting:
            if self._waiting[0].done():  # cancelled
                self._waiting.popleft()
                continue
            member = self._least_loaded()
            if member is None:
                return
            member.in_flight += 1
            self._waiting.popleft().set_result(member)
