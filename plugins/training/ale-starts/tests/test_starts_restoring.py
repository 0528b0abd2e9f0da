"""Forks in the run's real loop. The sandbox of these tests is a folder that says it is isolated.

What only real namespaces show (sessions, processes, files in memory) is tested in
tests/e2e/test_restoring.py.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest

from ale._run.run import Run
from ale.errors import SandboxError
from ale.plugin import Component, hookimpl
from ale.protocols import AgentContext
from ale.testing.fakes import FolderBackend, FolderSandbox
from ale.types import ExecResult, Limits, SandboxSpec, Stop, replace

Finish = Callable[[Run], Any]
FORKED = {"type": "rollback", "restore": "fork", "min_rollouts": 99}
FREE = replace(FolderSandbox.capabilities, filesystem_isolation=True, process_isolation=True)


class Shelf(FolderBackend):
    """Knows every sandbox that it has opened, and their forks."""

    capabilities = FREE

    def __init__(self) -> None:
        self.boxes: list[Boxed] = []
        self.forking: Callable[[], None] = lambda: None
        """Called for each fork; may raise."""
        self.running = "init"
        """In those that are no forks."""

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[FolderSandbox]:
        box = Boxed(self)
        try:
            yield box
        finally:
            await box.close()

    def left(self) -> list["Boxed"]:
        return [box for box in self.boxes if not box.closed]


class Boxed(FolderSandbox):
    """Says that its path is always the same, and that nobody else is in it."""

    capabilities = FREE

    def __init__(self, shelf: Shelf, *, forked: bool = False) -> None:
        self.shelf, self.forked = shelf, forked
        self.ran: list[str] = []
        super().__init__()
        self.workdir = "/workspace"
        shelf.boxes.append(self)

    async def exec(self, command: str | Sequence[str], **options: Any) -> ExecResult:
        if "/proc/mounts" in command:
            running = "init" if self.forked else self.shelf.running
            return ExecResult(exit_code=0, stdout=f"processes\n{running}\n".encode(), stderr=b"")
        self.ran.append(str(command))
        options["env"] = {**(options.get("env") or {}), "HOME": "/"}
        return await super().exec(command, **options)

    async def fork(self) -> "Boxed":
        self.shelf.forking()
        twin = Boxed(self.shelf, forked=True)
        await super().exec(["cp", "-a", f"{self._folder}/.", str(twin._folder)])
        return twin


@pytest.fixture
def shelf(workplace: Any) -> Shelf:
    """Takes the place of the shop's folders."""
    made = Shelf()

    class Boxes:
        @hookimpl
        def ale_sandboxes(self) -> Sequence[Component[Any, Any]]:
            build = lambda options, context: made  # noqa: E731
            return [Component("boxes", None, build, summary="Of a test.", priority=2)]

    workplace.registry.add(Boxes(), "ale-boxes", "1.0")
    return made


def ways_of(run: Run) -> dict[str, tuple[str, str]]:
    """How each episode came to its start, and why not by a fork."""
    return {
        episode.id: (episode.metadata.get("restored", ""), episode.metadata.get("not_forked", ""))
        for episode in run.store.reader.episodes
    }


def shown(run: Run) -> Mapping[str, Any]:
    """What there was to see and to train on in each episode, its times left out."""
    return {
        episode.id: (
            episode.reward,
            [
                (turn.completion, [replace(seen, duration_s=0.0) for seen in turn.observations])
                for turn in episode.trajectory.turns
            ],
        )
        for episode in run.store.reader.episodes
    }


async def test_the_first_rollout_is_replayed_and_the_others_are_forked_from_it(
    workplace: Any, finish: Finish, shelf: Shelf
) -> None:
    run = workplace.prepared(FORKED, steps=1, rollouts=4)
    await finish(run)
    ways = ways_of(run)
    assert ways.pop("0-upper@p3of4-0") == ("replay", "first rollout of this start")
    assert set(ways.values()) == {("fork", "")}
    # One that ran the three commands, one snapshot, three forks of it in which none of them ran.
    assert [box.ran[:1] == ["mkdir w"] for box in shelf.boxes] == [True, False, False, False, False]
    assert shelf.left() == []


async def test_forked_and_replayed_rollouts_have_the_same_record(
    workplace: Any, finish: Finish, shelf: Shelf
) -> None:
    forked = workplace.prepared({**FORKED, "min_rollouts": 2}, steps=4, rollouts=2)
    await finish(forked)
    assert ("fork", "") in ways_of(forked).values()
    replayed = workplace.prepared(
        {**FORKED, "min_rollouts": 2, "restore": "replay"}, steps=4, rollouts=2
    )
    await finish(replayed)
    assert set(ways_of(replayed).values()) == {("", "")}
    assert shown(forked) == shown(replayed)


async def test_a_snapshot_is_reused_in_later_steps(
    workplace: Any, finish: Finish, shelf: Shelf
) -> None:
    run = workplace.prepared(FORKED, steps=3, rollouts=2)
    await finish(run)
    assert [way for way, _ in ways_of(run).values()].count("replay") == 1
    assert sum("mkdir w" in box.ran for box in shelf.boxes) == 1


async def test_no_more_snapshots_are_open_than_max_snapshots(
    workplace: Any, finish: Finish, shelf: Shelf
) -> None:
    most = 0

    def count() -> None:
        nonlocal most
        most = max(most, sum(box.forked for box in shelf.left()))

    shelf.forking = count
    starts = {"type": "parallel", "anchors": 4, "restore": "fork", "max_snapshots": 1}
    run = workplace.prepared(starts, steps=2, rollouts=8, concurrency=1)
    await finish(run)
    # The stored snapshot, and the one in use.
    assert 1 <= most <= 2
    assert shelf.left() == []
    ways = [way for way, _ in ways_of(run).values() if way]
    assert ways.count("fork") == ways.count("replay") == 6


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_start_whose_fork_is_not_exact_is_replayed(
    workplace: Any, finish: Finish, shelf: Shelf, concurrency: int
) -> None:
    shelf.running = "init\nserver"
    run = workplace.prepared(FORKED, steps=1, rollouts=4, concurrency=concurrency)
    await finish(run)
    assert set(ways_of(run).values()) == {("replay", "processes are still running: server")}
    assert all(reward == 1.0 for reward, _ in shown(run).values())
    assert shelf.left() == []


async def test_a_rollout_whose_fork_fails_is_replayed_and_the_next_is_tried_again(
    workplace: Any, finish: Finish, shelf: Shelf
) -> None:
    made = iter([True, True, False, True])

    def fail() -> None:
        if not next(made, False):
            raise SandboxError("no space left")

    shelf.forking = fail
    run = workplace.prepared(FORKED, steps=1, rollouts=4, concurrency=1)
    await finish(run)
    assert list(ways_of(run).values()) == [
        ("replay", "first rollout of this start"),
        ("fork", ""),
        ("replay", "no fork could be made: no space left"),
        ("fork", ""),
    ]
    assert all(reward == 1.0 for reward, _ in shown(run).values())
    assert shelf.left() == []


async def test_a_sandbox_that_can_not_be_forked_is_replayed(workplace: Any, finish: Finish) -> None:
    run = workplace.prepared(FORKED, steps=1, rollouts=2)
    await finish(run)
    (why,) = set(ways_of(run).values())
    assert why == (
        "replay",
        "a fork of this sandbox has its workspace only, and commands can write elsewhere",
    )


class Moody:
    """Does something of its own before it does what it is told."""

    limits = Limits(max_turns=5, time_limit_s=60)

    def __init__(self, talker: Any, own: Callable[[AgentContext], str]) -> None:
        self._talker, self._own = talker, own

    async def run(self, context: AgentContext) -> Stop:
        await context.sandbox.exec(self._own(context))
        stop: Stop = await self._talker.run(context)
        return stop


async def test_an_agent_that_does_not_repeat_itself_is_found_out_and_replayed(
    workplace: Any, finish: Finish, shelf: Shelf
) -> None:
    talker = workplace.shop.ale_agents()[0].build(None, None)

    class Agents:
        @hookimpl
        def ale_agents(self) -> Sequence[Component[Any, Any]]:
            moody = Moody(talker, lambda context: f"true {context.conversation.rollout}")
            build = lambda options, context: moody  # noqa: E731
            return [Component("moody", None, build, summary="Of a test.")]

    workplace.registry.add(Agents(), "ale-moods", "1.0")
    run = workplace.prepared(FORKED, agent="moody", steps=1, rollouts=3, concurrency=1, retries=1)
    await finish(run)
    episodes = {episode.id: episode for episode in run.store.reader.episodes}
    second = episodes["0-upper@p3of4-1"]
    assert second.reward == 1.0
    assert second.metadata["restored"] == "replay"
    assert "made another call" in second.metadata["not_forked"]
    (failure,) = second.earlier_failures
    assert failure.kind == "ReplayError"
    assert "recorded  exec('true 0'" in failure.message
    assert "found     exec('true 1'" in failure.message
    # Known from then on.
    assert episodes["0-upper@p3of4-2"].earlier_failures == ()


async def test_an_agent_that_ends_before_the_start_is_never_graded_on_the_state_after_it(
    workplace: Any, finish: Finish, shelf: Shelf
) -> None:
    short = workplace.shop.ale_agents()[0].build(None, None)

    class Impatient:
        limits = Limits(time_limit_s=60)

        async def run(self, context: AgentContext) -> Stop:
            if context.conversation.rollout == 0:
                stop: Stop = await short.run(context)
                return stop
            return Stop(reason="gave_up")

    class Agents:
        @hookimpl
        def ale_agents(self) -> Sequence[Component[Any, Any]]:
            build = lambda options, context: Impatient()  # noqa: E731
            return [Component("impatient", None, build, summary="Of a test.")]

    workplace.registry.add(Agents(), "ale-moods", "1.0")
    run = workplace.prepared(
        FORKED, agent="impatient", steps=1, rollouts=2, concurrency=1, retries=0
    )
    await finish(run)
    rewards = [reward for reward, _ in shown(run).values()]
    assert rewards == [1.0, None]
