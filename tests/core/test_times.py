"""Where each second of a step went, by a clock that only the parts move."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale._config import structure_config
from ale._registry import Registry
from ale._run.run import Run
from ale._run.session import Times
from ale.plugin import Component, hookimpl
from ale.protocols import AgentContext
from ale.strict import from_plain
from ale.testing.builders import turn
from ale.testing.fakes import FakePolicy, FakeTrainer, ManualClock
from ale.types import (
    Batch,
    Credit,
    Group,
    Message,
    PolicySnapshot,
    Score,
    StepFinished,
    StepReport,
    Stop,
    replace,
)

Finish = Callable[[Run], Any]
OPEN, ANSWER, TOOL, THOUGHT, GRADE = 0.5, 5.0, 3.0, 1.0, 4.0
CREDIT, LEARN, HAND_OVER, SAVE, LISTEN = 0.25, 7.0, 1.0, 2.0, 6.0


class Parts(FakeTrainer):
    """A trainer, its model, a credit scheme and an observer, each of which takes its time."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    async def step(self, batch: Batch) -> StepReport:
        self.clock.now += LEARN
        return await super().step(batch)

    def snapshot(self) -> PolicySnapshot:
        self.clock.now += HAND_OVER
        return super().snapshot()

    def save(self, directory: Path) -> None:
        self.clock.now += SAVE
        super().save(directory)

    def assign(self, group: Group) -> Sequence[Credit]:
        self.clock.now += CREDIT
        return [
            Credit(
                episode_id=rollout.episode.id,
                scheme="slow",
                rewards=(0.0,) * len(rollout.chunks),
                returns=tuple(0.5**k for k in range(len(rollout.chunks))),
                weights=(1.0,) * len(rollout.chunks),
            )
            for rollout in group.rollouts
        ]

    @hookimpl
    def ale_step_finished(self, event: StepFinished) -> None:
        self.clock.now += LISTEN


class School:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    @hookimpl
    def ale_trainers(self) -> Sequence[Component[Any, Any]]:
        return [Component("slow", None, lambda o, c: self.parts, summary="Learns.")]

    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        model = FakePolicy(lambda request: Message(role="assistant"))
        return [Component("slow", None, lambda o, c: model, summary="Is taught.")]

    @hookimpl
    def ale_credit_schemes(self) -> Sequence[Component[Any, Any]]:
        return [Component("slow", None, lambda o, c: self.parts, summary="Credits.")]

    @hookimpl
    def ale_observers(self) -> Sequence[Component[Any, Any]]:
        return [Component("slow", None, lambda o, c: self.parts, summary="Listens.")]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0.0)


@pytest.fixture(autouse=True)
def parts(registry: Registry, bench: Any, clock: ManualClock) -> Parts:
    async def agent(context: AgentContext) -> Stop:
        clock.now += ANSWER + TOOL + THOUGHT
        made = turn("done", calls=[("shell", "{}")])
        (seen,) = made.observations
        seen = replace(seen, duration_s=TOOL)
        context.recorder.append(replace(made, observations=(seen,), duration_s=ANSWER + TOOL))
        return Stop(reason="finished")

    async def grade(sandbox: Any) -> Score:
        clock.now += GRADE
        return Score(criterion="done", passed=True, value=1.0)

    def opened(spec: Any) -> None:
        clock.now += OPEN

    bench.agent, bench.grade, bench.open_hook = agent, grade, opened
    made = Parts(clock)
    registry.add(School(made), "ale-school")
    return made


def prepared(workplace: Any, clock: ManualClock, *, every: int | None = None, **run: Any) -> Run:
    plain = {
        "tasks": {"type": "list", "n": 2},
        "agent": {"type": "bench"},
        **{part: {"type": "slow"} for part in ("llm", "trainer", "credit")},
        "observers": [{"type": "slow"}],
        "run": {"directory": str(workplace.directory), "concurrency": 1, **run},
    }
    if every is not None:
        plain["evaluation"] = {"tasks": {"type": "list"}, "every": every, "temperatures": [1]}
    config = structure_config(from_plain(plain), workplace.registry)
    made: Run = workplace.prepared(config, clocks={"clock": ManualClock(), "monotonic": clock})
    return made


def reported(run: Run, name: str = "step_finished") -> list[Mapping[str, Any]]:
    return [event for event in run.store.reader.events() if event["event"] == name]


def seconds(event: Mapping[str, Any]) -> dict[str, float]:
    prefix = "seconds."
    metrics = event["metrics"].items()
    return {k.removeprefix(prefix): v for k, v in metrics if k.startswith(prefix)}


EPISODE = OPEN + ANSWER + TOOL + THOUGHT + GRADE


async def test_a_step_reports_its_seconds_by_activity(
    workplace: Any, finish: Finish, clock: ManualClock
) -> None:
    run = prepared(workplace, clock, steps=2, every=1)
    await finish(run)
    first, second = (seconds(event) for event in reported(run))
    assert first == {
        "evaluation": EPISODE,
        "rollouts": 2 * EPISODE,
        "crediting": 2 * CREDIT,
        "training": LEARN,
        "hand_over": HAND_OVER,
        "checkpoint": SAVE,
        "idle": 0.0,
        "episodes.sandbox": 2 * OPEN,
        "episodes.setup": 0.0,
        "episodes.agent": 2 * (ANSWER + TOOL + THOUGHT),
        "episodes.sampling": 2 * ANSWER,
        "episodes.tools": 2 * TOOL,
        "episodes.grading": 2 * GRADE,
        "episodes.teardown": 0.0,
    }
    assert second == {**first, "idle": LISTEN}, "what observers take is none of these"
    assert [event["seconds"] for event in reported(run, "evaluation_finished")] == [EPISODE] * 3
    of_the_run = [v for k, v in (*first.items(), *second.items()) if "episodes" not in k]
    assert math.fsum(of_the_run) + LISTEN + EPISODE == clock.now, "nothing is lost or counted twice"


async def test_a_step_without_an_evaluation_before_it_says_so(
    workplace: Any, finish: Finish, clock: ManualClock
) -> None:
    run = prepared(workplace, clock, steps=3, every=2)
    await finish(run)
    assert [seconds(event)["evaluation"] for event in reported(run)] == [EPISODE, 0.0, EPISODE]


async def test_a_step_reports_the_mean_return_of_its_episodes(
    workplace: Any, finish: Finish, clock: ManualClock, bench: Any
) -> None:
    async def two_turns(context: AgentContext) -> Stop:
        context.recorder.append(turn("so"))
        context.recorder.append(turn("done"))
        return Stop(reason="finished")

    bench.agent = two_turns
    run = prepared(workplace, clock)
    await finish(run)
    (event,) = reported(run)
    assert event["metrics"]["mean_return"] == 1.0, "of what follows from the first chunk on"


async def test_a_turn_that_did_nothing_is_not_the_first_of_a_return(
    workplace: Any, finish: Finish, clock: ManualClock, bench: Any
) -> None:
    async def idle_then_done(context: AgentContext) -> Stop:
        context.recorder.append(replace(turn("Hm."), credited=False))
        context.recorder.append(turn("done"))
        return Stop(reason="finished")

    bench.agent = idle_then_done
    run = prepared(workplace, clock)
    await finish(run)
    (event,) = reported(run)
    assert event["metrics"]["mean_return"] == 1.0


async def test_the_seconds_of_episodes_that_run_ahead_are_those_of_their_own_step(
    workplace: Any, finish: Finish, clock: ManualClock, bench: Any, parts: Parts
) -> None:
    ahead = asyncio.Event()
    begun: list[int] = []
    took = {0: 10.0, 1: 100.0}

    async def agent(context: AgentContext) -> Stop:
        step = int(context.conversation.episode_id.split("-")[0])
        clock.now += took[step]
        context.recorder.append(turn("done"))
        begun.append(step)
        if begun == [0, 0, 1, 1]:
            ahead.set()
        return Stop(reason="finished")

    class Patient(Parts):
        async def step(self, batch: Batch) -> StepReport:
            await asyncio.wait_for(ahead.wait(), 60)
            return await super().step(batch)

    bench.agent = agent
    run = prepared(workplace, clock, steps=2, staleness=1)
    run = evolve(run, parts=evolve(run.parts, trainer=Patient(clock)))
    await finish(run)
    took_each = [seconds(event)["episodes.agent"] for event in reported(run)]
    assert took_each == pytest.approx([20.0, 200.0], abs=40), "the clock is everybody's"


def test_a_step_reports_the_shares_of_waiting_on_either_side(clock: ManualClock) -> None:
    times = Times(clock)
    with times.on("rollouts"), times.holding_up_rollouts():
        clock.now += 1.0
    with times.holding_up_rollouts():
        with times.on("training"):
            clock.now += 3.0
        first = times.of_step([], stream=True)
        with times.on("rollouts"):
            clock.now += 2.0
    clock.now += 2.0
    second = times.of_step([], stream=True)
    assert [first[f"{side}_waiting_share"] for side in ("trainer", "rollouts")] == [0.25, 1.0]
    assert [second[f"{side}_waiting_share"] for side in ("trainer", "rollouts")] == [0.5, 0.5]


def test_a_step_that_took_no_time_waited_for_none(clock: ManualClock) -> None:
    assert Times(clock).of_step([]) == {"trainer_waiting_share": 0.0, "seconds.idle": 0.0}
