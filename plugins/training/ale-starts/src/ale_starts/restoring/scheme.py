"""A start scheme whose rollouts are forked if forks are exact, and replayed otherwise.

The first rollout of a start replays the expert's turns (`FirstReplay`) and takes a snapshot. The
others wait for it, then fork the snapshot (`ForkAttempt`). Once a fork of a start is found not to
be exact, its rollouts are replayed (`ReplayAttempt`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)

from attrs import Factory, define, field, frozen

from ale.errors import ReplayError, SandboxError
from ale.protocols import Restoring, Sandbox, Start, StartScheme
from ale.types import Capabilities, Episode, Task
from ale_starts.restoring.recording import RecordingSandbox
from ale_starts.restoring.replay import ReplayingFork
from ale_starts.restoring.snapshot import (
    NotExactError,
    NotMadeError,
    Snapshot,
    initial_shell_state,
    take_snapshot,
)

Fresh = Callable[[], AbstractAsyncContextManager[Sandbox]]
FIRST = "first rollout of this start"
"""Reason for a replay while later rollouts may be forked."""


@define(eq=False)
class _StartState:
    """State of one start."""

    snapshot: Snapshot | None = None
    refused: str = ""
    """Why this start's rollouts are not forked; empty until known."""
    replaying: bool = False
    """The first rollout is replaying; others wait for its snapshot."""
    replay_ended: asyncio.Event = Factory(asyncio.Event)
    users: int = 0
    """Rollouts that use the snapshot."""

    def stop(self) -> None:
        """Wake the others: the replay has reached the start, or failed."""
        self.replaying = False
        self.replay_ended.set()

    def refuse(self, why: str) -> None:
        """Replay every later rollout; the first reason is recorded."""
        self.refused = self.refused or why


@frozen(eq=False)
class ForkedStarts:
    """Wraps a scheme: its rollouts are forked from one snapshot per start."""

    _scheme: StartScheme
    _max_snapshots: int
    """Most snapshots open at once; the least recently used is closed."""
    _places: dict[tuple[str, str], _StartState] = field(factory=dict, init=False)
    """State by start, least recently used first."""

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """The wrapped scheme's plan."""
        return self._scheme.plan(step, tasks, rollouts)

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """Pass the episodes to the wrapped scheme."""
        self._scheme.learn(step, episodes)

    @asynccontextmanager
    async def restoring(self, start: Start) -> AsyncIterator[Restoring]:
        """One attempt; waits while the first rollout of this start is replaying."""
        place = self._use(start)
        while place.replaying and place.snapshot is None and not place.refused:
            await place.replay_ended.wait()
        if place.refused:
            yield ReplayAttempt(place.refused)
        elif place.snapshot is not None:
            async with _fork_attempt(place, place.snapshot) as attempt:
                yield attempt
        else:
            place.replaying = True
            place.replay_ended.clear()
            replaying = FirstReplay(place)
            try:
                yield replaying
            finally:
                replaying.stop()
        await self._trim()

    def _use(self, start: Start) -> _StartState:
        key = (start.task_id, start.name)
        place = self._places.pop(key, None) or _StartState()
        self._places[key] = place
        return place

    async def _trim(self) -> None:
        """Close refused snapshots, and the least recently used ones over the limit."""
        held = [place for place in self._places.values() if place.snapshot is not None]
        over = held[: max(0, len(held) - self._max_snapshots)]
        for place in held:
            if (place.refused or place in over) and not place.users:
                # A failed close harms no episode; `ale sandbox prune` removes the sandbox.
                with suppress(SandboxError):
                    await _close_snapshot(place)

    async def aclose(self) -> None:
        """Close every snapshot.

        Raises:
            SandboxError: a snapshot could not be closed; all others have been.
        """
        async with AsyncExitStack() as closing:
            for place in self._places.values():
                closing.push_async_callback(_close_snapshot, place)


@asynccontextmanager
async def _fork_attempt(place: _StartState, snapshot: Snapshot) -> AsyncIterator["ForkAttempt"]:
    attempt = ForkAttempt(place, snapshot)
    place.users += 1
    try:
        yield attempt
    except ReplayError as error:
        if attempt.forked is not None:  # the agent did not repeat its calls
            place.refuse(str(error))
        raise
    finally:
        place.users -= 1


async def _close_snapshot(place: _StartState) -> None:
    snapshot, place.snapshot = place.snapshot, None
    if snapshot is not None:
        await snapshot.close()


def _not_exact_reason(capabilities: Capabilities) -> str:
    """Why forks of a sandbox with these capabilities can't be exact; empty if they may be."""
    if capabilities.fork == "replay":
        return "this sandbox can't be forked"
    if not capabilities.filesystem_isolation:
        return "a fork of this sandbox has its workspace only, and commands can write elsewhere"
    if not capabilities.process_isolation:
        return "this sandbox's processes can't be distinguished from others"
    return ""


class ReplayAttempt:
    """A rollout that is replayed because forks of its start are not exact."""

    def __init__(self, why: str) -> None:
        self.facts: Mapping[str, str] = {"restored": "replay", "not_forked": why}

    def open(self, fresh: Fresh) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox."""
        return fresh()

    async def expert_finished(self) -> None:
        """Does nothing."""


@define(eq=False)
class FirstReplay:
    """The first rollout: it is replayed, and takes the snapshot."""

    _place: _StartState
    _box: RecordingSandbox | None = field(default=None, init=False)
    _why: str = field(default=FIRST, init=False)
    _replaying: bool = field(default=True, init=False)

    @property
    def facts(self) -> Mapping[str, str]:
        """The facts that this rollout was replayed, and why."""
        return {"restored": "replay", "not_forked": self._why}

    def stop(self) -> None:
        """Wake waiting rollouts, if that has not been done."""
        if self._replaying:
            self._replaying = False
            self._place.stop()

    def _refuse(self, why: str) -> None:
        self._why = why
        self._place.refuse(why)

    @asynccontextmanager
    async def open(self, fresh: Fresh) -> AsyncIterator[Sandbox]:
        """A fresh sandbox whose calls are recorded."""
        async with fresh() as sandbox:
            why = _not_exact_reason(sandbox.capabilities)
            if why:
                self._refuse(why)
                self.stop()
                yield sandbox
            else:
                self._box = RecordingSandbox(sandbox, initial_shell_state)
                yield self._box

    async def expert_finished(self) -> None:
        """Take the snapshot now, so that others need not wait for the end of this rollout."""
        box, log = self._box, None if self._box is None else self._box.log
        if box is None or log is None:
            return
        box.log = None
        try:
            self._place.snapshot = await take_snapshot(box, log)
        except NotExactError as error:
            self._refuse(str(error))
        finally:
            self.stop()


@define(eq=False)
class ForkAttempt:
    """A later rollout: it runs in a fork of the snapshot; earlier turns are answered from a log."""

    _place: _StartState
    _snapshot: Snapshot
    forked: ReplayingFork | None = field(default=None, init=False)
    _why: str = field(default="", init=False)

    @property
    def facts(self) -> Mapping[str, str]:
        """The facts that this rollout was forked, or was replayed and why."""
        if self.forked is None:
            return {"restored": "replay", "not_forked": self._why}
        return {"restored": "fork"}

    @asynccontextmanager
    async def open(self, fresh: Fresh) -> AsyncIterator[Sandbox]:
        """A fork; a fresh sandbox if forking failed."""
        self.forked = await self._fork()
        if self.forked is None:
            async with fresh() as sandbox:
                yield sandbox
            return
        try:
            yield self.forked
        finally:
            await self.forked.close()

    async def _fork(self) -> ReplayingFork | None:
        try:
            return await self._snapshot.fork()
        except NotExactError as error:
            self._why = str(error)
            if not isinstance(error, NotMadeError):  # after that error the next attempt may succeed
                self._place.refuse(self._why)
            return None

    async def expert_finished(self) -> None:
        """From now on calls go to the fork.

        Raises:
            ReplayError: the agent made fewer calls than the first rollout's.
        """
        if self.forked is not None:
            self.forked.arrive()
