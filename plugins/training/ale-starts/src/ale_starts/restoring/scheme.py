"""A start scheme whose rollouts are forked, where forks are exact, and replayed where not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)

from attrs import Factory, define

from ale.errors import ReplayError, SandboxError
from ale.protocols import Restoring, Sandbox, Start, StartScheme
from ale.types import Capabilities, Episode, Task
from ale_starts.restoring.playing import Played
from ale_starts.restoring.recording import Recorded
from ale_starts.restoring.trunk import (
    NotExactError,
    NotMadeError,
    Trunk,
    freeze,
    fresh_state,
)

Fresh = Callable[[], AbstractAsyncContextManager[Sandbox]]
FIRST = "it was the first from here"
"""Why a rollout was replayed where the rest need not be."""


@define(eq=False)
class _Place:
    """A start, and what is known of its state."""

    trunk: Trunk | None = None
    refused: str = ""
    """Why its rollouts are not forked, once that is known."""
    walking: bool = False
    """A rollout is on its way here by replay; the others wait for what comes of it."""
    moved: asyncio.Event = Factory(asyncio.Event)
    users: int = 0
    """Rollouts that may fork the trunk."""

    def walk(self) -> None:
        """A rollout sets out."""
        self.walking = True
        self.moved.clear()

    def stop(self) -> None:
        """It has arrived, or is lost."""
        self.walking = False
        self.moved.set()

    def refuse(self, why: str) -> None:
        """Replay from now on."""
        self.refused = self.refused or why


class ForkedStarts:
    """Another scheme's starts, reached by forks.

    The first rollout from a start replays the expert's turns, and its sandbox is forked when it
    has arrived: that fork, the trunk, is kept and forked again for each of the others.

    Args:
        keep: trunks, those used last.
    """

    def __init__(self, scheme: StartScheme, keep: int) -> None:
        self._scheme = scheme
        self._keep = keep
        self._places: dict[tuple[str, str], _Place] = {}
        """Those used last come last."""

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """The other scheme's."""
        return self._scheme.plan(step, tasks, rollouts)

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """For the other scheme."""
        self._scheme.learn(step, episodes)

    @asynccontextmanager
    async def restoring(self, start: Start) -> AsyncIterator[Restoring]:
        """One attempt; it waits while another rollout is on its way to this start."""
        place = self._use(start)
        while place.walking and place.trunk is None and not place.refused:
            await place.moved.wait()
        if place.refused:
            yield Replaying(place.refused)
        elif place.trunk is not None:
            async with _forking(place, place.trunk) as forking:
                yield forking
        else:
            place.walk()
            walking = Walking(place)
            try:
                yield walking
            finally:
                walking.stop()
        await self._trim()

    def _use(self, start: Start) -> _Place:
        key = (start.task_id, start.name)
        place = self._places.pop(key, None) or _Place()
        self._places[key] = place
        return place

    async def _trim(self) -> None:
        """Let go of the trunks that were used longest ago, and of those that are of no use."""
        held = [place for place in self._places.values() if place.trunk is not None]
        over = held[: max(0, len(held) - self._keep)]
        for place in held:
            if (place.refused or place in over) and not place.users:
                # One that can't be closed spoils no episode: the next prune finds it.
                with suppress(SandboxError):
                    await _let_go(place)

    async def aclose(self) -> None:
        """Let go of every trunk.

        Raises:
            SandboxError: one could not be closed, after all others have been.
        """
        async with AsyncExitStack() as closing:
            for place in self._places.values():
                closing.push_async_callback(_let_go, place)


@asynccontextmanager
async def _forking(place: _Place, trunk: Trunk) -> AsyncIterator["Forking"]:
    forking = Forking(place, trunk)
    place.users += 1
    try:
        yield forking
    except ReplayError as error:
        if forking.forked is not None:  # the agent does not repeat itself
            place.refuse(str(error))
        raise
    finally:
        place.users -= 1


async def _let_go(place: _Place) -> None:
    trunk, place.trunk = place.trunk, None
    if trunk is not None:
        await trunk.close()


def _why_not(capabilities: Capabilities) -> str:
    """Why forks of such a sandbox can't be exact, or nothing."""
    if capabilities.fork == "replay":
        return "this sandbox can't be forked"
    if not capabilities.filesystem_isolation:
        return "a fork of this sandbox has its workspace only, and commands can write elsewhere"
    if not capabilities.process_isolation:
        return "this sandbox's processes can't be told from those of others"
    return ""


class Replaying:
    """A rollout that is replayed because of what was found out before."""

    def __init__(self, why: str) -> None:
        self.facts: Mapping[str, str] = {"restored": "replay", "not_forked": why}

    def open(self, fresh: Fresh) -> AbstractAsyncContextManager[Sandbox]:
        """A fresh sandbox."""
        return fresh()

    async def expert_finished(self) -> None:
        """Nothing."""


class Walking:
    """The first rollout: it is replayed, and leaves a trunk."""

    def __init__(self, place: _Place) -> None:
        self._place = place
        self._box: Recorded | None = None
        self._why = FIRST
        self._walking = True

    @property
    def facts(self) -> Mapping[str, str]:
        """Replayed, in any case."""
        return {"restored": "replay", "not_forked": self._why}

    def stop(self) -> None:
        """Let the others go on, if they still wait for this one."""
        if self._walking:
            self._walking = False
            self._place.stop()

    def _refuse(self, why: str) -> None:
        self._why = why
        self._place.refuse(why)

    @asynccontextmanager
    async def open(self, fresh: Fresh) -> AsyncIterator[Sandbox]:
        """A fresh sandbox whose use is kept."""
        async with fresh() as sandbox:
            why = _why_not(sandbox.capabilities)
            if why:
                self._refuse(why)
                self.stop()
                yield sandbox
            else:
                self._box = Recorded(sandbox, fresh_state)
                yield self._box

    async def expert_finished(self) -> None:
        """Make the trunk, so that the others need not wait for the end of this rollout."""
        box, log = self._box, None if self._box is None else self._box.log
        if box is None or log is None:
            return
        box.log = None
        try:
            self._place.trunk = await freeze(box, log)
        except NotExactError as error:
            self._refuse(str(error))
        finally:
            self.stop()


class Forking:
    """One of the others: it begins in a fork of the trunk, and hears of the turns before."""

    def __init__(self, place: _Place, trunk: Trunk) -> None:
        self.forked: Played | None = None
        self._place = place
        self._trunk = trunk
        self._why = ""

    @property
    def facts(self) -> Mapping[str, str]:
        """Forked, unless that failed."""
        if self.forked is None:
            return {"restored": "replay", "not_forked": self._why}
        return {"restored": "fork"}

    @asynccontextmanager
    async def open(self, fresh: Fresh) -> AsyncIterator[Sandbox]:
        """A fork; a fresh sandbox where none could be made."""
        self.forked = await self._fork()
        if self.forked is None:
            async with fresh() as sandbox:
                yield sandbox
            return
        try:
            yield self.forked
        finally:
            await self.forked.close()

    async def _fork(self) -> Played | None:
        try:
            return await self._trunk.fork()
        except NotExactError as error:
            self._why = str(error)
            if not isinstance(error, NotMadeError):  # that may be better the next time
                self._place.refuse(self._why)
            return None

    async def expert_finished(self) -> None:
        """From here on the agent acts in the fork.

        Raises:
            ReplayError: the agent has not done what the first rollout's did.
        """
        if self.forked is not None:
            self.forked.arrive()
