"""A group whose member broke gets a fresh episode in its place, in a run that trains."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import pytest

from ale._cli.run import summary
from ale._config import RunConfig, structure_config
from ale._registry import Registry
from ale._run.run import Run
from ale._run.start import check_run, closing_parts, resume, start
from ale.errors import SandboxError
from ale.plugin import Component, hookimpl
from ale.protocols import AgentContext
from ale.strict import from_plain
from ale.testing.builders import turn
from ale.testing.fakes import FakePolicy, FakeTrainer
from ale.types import Message, Stop

Finish = Callable[[Run], Coroutine[Any, Any, Any]]
SCHEDULES = pytest.mark.parametrize("schedule", ["steps", "stream"])


class School:
    """A model, and a trainer that a test can look into."""

    def __init__(self) -> None:
        self.learners: list[FakeTrainer] = []

    def _learner(self, *_: Any) -> FakeTrainer:
        self.learners.append(FakeTrainer())
        return self.learners[-1]

    def learned(self) -> list[dict[str, list[str]]]:
        """The episodes of each group of each step that the last trainer learned from."""
        return [
            {
                each.group.task_id: [rollout.episode.id for rollout in each.group.rollouts]
                for each in batch.groups
            }
            for batch in self.learners[-1].batches
        ]

    @hookimpl
    def ale_trainers(self) -> Sequence[Component[Any, Any]]:
        return [Component("learner", None, self._learner, summary="Learns.")]

    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        model = FakePolicy(lambda request: Message(role="assistant"))
        return [Component("pupil", None, lambda o, c: model, summary="Is taught.")]


@pytest.fixture(autouse=True)
def school(registry: Registry) -> School:
    made = School()
    registry.add(made, "ale-school")
    return made


def config(workplace: Any, **run: Any) -> RunConfig:
    plain = {
        "tasks": {"type": "list", "n": 2},
        "agent": {"type": "bench"},
        "llm": {"type": "pupil"},
        "trainer": {"type": "learner"},
        "run": {
            "directory": str(workplace.directory),
            "keep_checkpoints": None,
            "rollouts": 2,
            "steps": 2,
            "stop_after_broken": None,
            "concurrency": 1,
            **run,
        },
    }
    return structure_config(from_plain(plain), workplace.registry)


def breaking(*ids: str) -> Callable[[AgentContext], Awaitable[Stop]]:
    """An agent whose episodes with these ids break, however often they are tried."""

    async def agent(context: AgentContext) -> Stop:
        if context.conversation.episode_id in ids:
            raise SandboxError("the engine is gone")
        context.recorder.append(turn("done"))
        await context.sandbox.write("done", b"")
        return Stop(reason="finished")

    return agent


def stored(run: Run) -> list[str]:
    return [episode.id for episode in run.store.reader.episodes]


def short(run: Run) -> list[float]:
    events = run.store.reader.events()
    return [
        event["metrics"]["groups_short"] for event in events if event["event"] == "step_finished"
    ]


@SCHEDULES
async def test_a_fresh_episode_takes_the_place_of_one_that_broke(
    workplace: Any, bench: Any, school: School, schedule: str
) -> None:
    bench.agent = breaking("0-t0-1", "1-t1-0")
    run = await workplace.ran(config(workplace, schedule=schedule))
    assert school.learned() == [
        {"t0": ["0-t0-0", "0-t0-3"], "t1": ["0-t1-0", "0-t1-1"]},
        {"t0": ["1-t0-0", "1-t0-1"], "t1": ["1-t1-1", "1-t1-2"]},
    ]
    assert stored(run)[:3] == ["0-t0-0", "0-t0-1", "0-t0-3"], "at once, not after the others"
    seeds = [episode.seed for episode in run.store.reader.episodes]
    assert len({*seeds}) == len(seeds) == 10
    assert short(run) == [0, 0]
    assert run.store.index.broken() == 2, "which is still said"


@SCHEDULES
@pytest.mark.parametrize(
    ("retries", "sampled"),
    [(0, ["0-t0-1"]), (1, ["0-t0-1", "0-t0-3"]), (2, ["0-t0-1", "0-t0-3", "0-t0-5"])],
)
async def test_past_the_retries_a_group_is_learned_from_as_it_is_and_counted(
    workplace: Any, bench: Any, school: School, schedule: str, retries: int, sampled: list[str]
) -> None:
    bench.agent = breaking("0-t0-1", "0-t0-3", "0-t0-5")
    run = await workplace.ran(config(workplace, schedule=schedule, retries=retries, steps=1))
    assert school.learned() == [{"t0": ["0-t0-0"], "t1": ["0-t1-0", "0-t1-1"]}]
    assert [id for id in stored(run) if id.startswith("0-t0") and id != "0-t0-0"] == sampled
    assert short(run) == [1]


@SCHEDULES
async def test_a_group_without_any_episode_is_short_too(
    workplace: Any, bench: Any, schedule: str
) -> None:
    bench.agent = breaking("0-t0-0", "0-t0-1")
    run = await workplace.ran(config(workplace, schedule=schedule, retries=0, steps=1))
    assert short(run) == [1]


@SCHEDULES
async def test_a_run_that_was_killed_at_any_episode_has_the_same_groups_in_the_end(
    workplace: Any, bench: Any, school: School, schedule: str, finish: Finish
) -> None:
    bench.agent = whole = breaking("0-t0-1", "1-t1-0")
    run = await workplace.ran(config(workplace, schedule=schedule))
    wanted, tries = school.learned(), 2 * 2 * 2 + 2 * 2
    for n in range(tries):
        killed = workplace.prepared(config(workplace, schedule=schedule, name=f"killed-{n}"))
        bench.agent = killing(killed, whole, n)
        with suppress(asyncio.CancelledError):
            await asyncio.create_task(finish(killed))
        bench.agent = whole
        before = school.learned()
        again = resume(killed.store.path, workplace.outside())
        assert (await finish(again)).outcome == "completed"
        assert before + school.learned() == wanted, f"killed at try {n}"
        assert sorted(stored(again)) == sorted(stored(run)), f"killed at try {n}"


def killing(run: Run, agent: Callable[[AgentContext], Awaitable[Stop]], n: int) -> Any:
    """The agent, under whom the run is ended at the n-th try of an episode."""
    tries = itertools.count()

    async def killed(context: AgentContext) -> Stop:
        if next(tries) == n:
            run.interrupt.on_terminate()
            await asyncio.sleep(60)
        return await agent(context)

    return killed


@SCHEDULES
async def test_what_a_step_has_learned_from_is_not_completed_later(
    workplace: Any, bench: Any, school: School, schedule: str, finish: Finish
) -> None:
    """As in a run of an earlier version, or after ``run.retries`` was raised."""
    bench.agent = breaking("0-t0-1")
    run = await workplace.ran(config(workplace, schedule=schedule, retries=0))
    more = ["run.steps=3", "run.retries=5"]
    again = resume(run.store.path, workplace.outside(), overrides=more)
    await finish(again)
    assert [id for id in stored(again) if id.startswith("0-t0")] == ["0-t0-0", "0-t0-1"]
    assert school.learned() == [{"t0": ["2-t0-0", "2-t0-1"], "t1": ["2-t1-0", "2-t1-1"]}]


async def test_refills_look_at_groups_that_are_whole(
    workplace: Any, bench: Any, school: School
) -> None:
    """Only with the fresh episode, which fails, the rewards differ."""
    options = {"refills": 1, "tasks_per_step": 1, "steps": 1}
    whole = breaking("0-t0-1", "0-t1-1")

    async def agent(context: AgentContext) -> Stop:
        stop = await whole(context)
        if context.conversation.episode_id.endswith("-3"):
            await context.sandbox.exec("rm done")
        return stop

    bench.agent = agent
    run = await workplace.ran(config(workplace, **options))
    assert len(stored(run)) == 3
    (batch,) = school.learned()
    assert [len(ids) for ids in batch.values()] == [2]


async def test_a_run_that_trains_nothing_has_the_number_of_episodes_that_was_asked_for(
    workplace: Any, bench: Any
) -> None:
    bench.agent = breaking("0-t0-1")
    sampled = await workplace.ran(workplace.config(n=1, rollouts=2, concurrency=1))
    assert stored(sampled) == ["0-t0-0", "0-t0-1"]


async def test_an_episode_that_broke_as_the_run_was_to_end_is_replaced_after_a_resume(
    workplace: Any, bench: Any, school: School, finish: Finish
) -> None:
    run = workplace.prepared(config(workplace, steps=1))
    whole = breaking("0-t0-1")

    async def agent(context: AgentContext) -> Stop:
        if context.conversation.episode_id == "0-t0-1" and not run.interrupt.draining:
            run.interrupt.on_interrupt()
        return await whole(context)

    bench.agent = agent
    assert (await finish(run)).outcome == "drained"
    assert stored(run) == ["0-t0-0", "0-t0-1"]
    bench.agent = whole
    again = resume(run.store.path, workplace.outside())
    assert (await finish(again)).outcome == "completed"
    assert school.learned() == [{"t0": ["0-t0-0", "0-t0-3"], "t1": ["0-t1-0", "0-t1-1"]}]


async def test_a_resume_counts_what_was_sampled_in_the_place_of_others(
    workplace: Any, bench: Any, finish: Finish
) -> None:
    bench.agent = breaking("0-t0-1")
    run = await workplace.ran(config(workplace, steps=1))
    await finish(resume(run.store.path, workplace.outside()))
    started = [event for name, event in bench.events if name == "started"]
    assert [(each.n_episodes, each.n_done) for each in started] == [(4, 0), (5, 5)]


async def test_the_summary_says_how_many_groups_stayed_short(workplace: Any, bench: Any) -> None:
    bench.agent = breaking("0-t0-1", "0-t0-3", "1-t1-0", "0-t1-0")
    host = workplace.outside()
    run = start(check_run(config(workplace, steps=3, rollouts=2), "test", host), host)
    async with closing_parts(run):
        said = summary(run, await run.execute(), ())
    assert (
        "  short groups 1  (learned from with fewer episodes, in 1 step: what was in their place "
        "broke too)\n"
    ) in said


async def test_without_a_short_group_the_summary_says_nothing_of_them(workplace: Any) -> None:
    run = workplace.prepared(config(workplace, steps=1))
    async with closing_parts(run):
        said = summary(run, await run.execute(), ())
    assert "short groups" not in said
