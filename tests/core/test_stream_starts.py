"""``schedule: stream`` with start schemes, whose plans a resumed run makes again, and refills."""

import asyncio
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale._config import structure_config
from ale._registry import Registry
from ale._run.run import Run
from ale._run.start import resume
from ale.errors import PluginError
from ale.plugin import Component, hookimpl
from ale.protocols import AgentContext, Start
from ale.runs import branch_run
from ale.strict import from_plain
from ale.testing.builders import turn
from ale.testing.fakes import FakePolicy, FakeTrainer
from ale.types import Episode, Message, Stop, Task

Finish = Callable[[Run], Any]


class Growing:
    """A rollout of each task from its beginning, and two from a start named by what it learned."""

    def __init__(self) -> None:
        self.learned: list[tuple[int, list[str]]] = []
        self.demonstrations = 0

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        n = sum(len(ids) for _, ids in self.learned)
        shown = step < self.demonstrations
        return [
            start
            for task in tasks
            for start in (
                Start(task_id=task.id, rollouts=1, demonstration=shown),
                *([Start(task_id=task.id, rollouts=2, name=f"n{n}")] if step % 2 else []),
            )
        ]

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        self.learned.append((step, [episode.id for episode in episodes]))


class School:
    """The scheme, the learner and its model; each build makes a new one, as a resumed run does."""

    def __init__(self) -> None:
        self.schemes: list[Growing] = []
        self.scheme: Callable[[], Growing] = Growing

    def _scheme(self, *_: Any) -> Growing:
        self.schemes.append(self.scheme())
        return self.schemes[-1]

    @hookimpl
    def ale_starts(self) -> Sequence[Component[Any, Any]]:
        return [Component("growing", None, self._scheme, summary="Grows.")]

    @hookimpl
    def ale_trainers(self) -> Sequence[Component[Any, Any]]:
        return [Component("learner", None, lambda o, c: FakeTrainer(), summary="Learns.")]

    @hookimpl
    def ale_llms(self) -> Sequence[Component[Any, Any]]:
        model = FakePolicy(lambda request: Message(role="assistant"))
        return [Component("pupil", None, lambda o, c: model, summary="Is taught.")]


@pytest.fixture(autouse=True)
def school(registry: Registry) -> School:
    made = School()
    registry.add(made, "ale-school")
    return made


def config(workplace: Any, *, n: int = 3, starts: bool = True, **run: Any) -> Any:
    plain: dict[str, Any] = {
        "tasks": {"type": "list", "n": n},
        "agent": {"type": "bench"},
        "llm": {"type": "pupil"},
        "trainer": {"type": "learner"},
        "run": {
            "directory": str(workplace.directory),
            "schedule": "stream",
            "keep_checkpoints": None,
            **run,
        },
    }
    if starts:
        plain["starts"] = {"type": "growing"}
    return structure_config(from_plain(plain), workplace.registry)


def lines(run: Run, event: str) -> list[dict[str, Any]]:
    whole, _, _ = (run.store.path / "groups.jsonl").read_text().rpartition("\n")
    return [line for line in map(json.loads, whole.splitlines()) if line["event"] == event]


def groups(run: Run, event: str) -> list[tuple[Any, ...]]:
    return [tuple(group) for line in lines(run, event) for group in line["groups"]]


def jitter(chance: random.Random) -> Callable[[AgentContext], Any]:
    async def agent(context: AgentContext) -> Stop:
        await asyncio.sleep(chance.choice((0, 0, 0, 0.01)))
        context.recorder.append(turn("done"))
        return Stop(reason="finished")

    return agent


OPTIONS = {"steps": 5, "tasks_per_step": 2}


async def test_without_staleness_a_scheme_plans_and_learns_as_in_steps(
    workplace: Any, school: School
) -> None:
    found = {}
    for schedule in ("steps", "stream"):
        options = {**OPTIONS, "concurrency": 1, "deterministic": True, "name": schedule}
        run = await workplace.ran(config(workplace, **options, schedule=schedule))
        names = ("episodes.jsonl", *(f"credits/{step:05d}.jsonl" for step in range(5)))
        files = {name: (run.store.path / name).read_bytes() for name in names}
        found[schedule] = (files, run.parts.trainer.seen, school.schemes[-1].learned)
    assert found["steps"] == found["stream"]
    assert any("@n" in id for id in found["stream"][1][3])


async def test_a_step_learns_from_as_many_groups_as_were_planned_for_it(
    workplace: Any, bench: Any, school: School
) -> None:
    bench.agent = jitter(random.Random(3))
    run = await workplace.ran(config(workplace, **OPTIONS, staleness=2))
    assert [len(line["groups"]) for line in lines(run, "trained")] == [2, 4, 2, 4, 2]
    assert sorted(groups(run, "trained")) == sorted(groups(run, "planned"))
    assert [line["step"] for line in lines(run, "planned")] == [0, 0, 0, 1, 2]
    learned = school.schemes[-1].learned
    assert [step for step, _ in learned] == list(range(5))
    assert {step: sorted(ids) for step, ids in learned} == {
        step: sorted(ids) for step, ids in run.parts.trainer.seen.items()
    }


@pytest.mark.parametrize("seed", range(6))
async def test_a_resumed_run_plans_what_it_had_planned_and_loses_nothing(
    workplace: Any, finish: Finish, bench: Any, seed: int
) -> None:
    chance = random.Random(seed)
    bench.agent = jitter(chance)
    run = await workplace.ran(config(workplace, **OPTIONS, staleness=2, concurrency=5))
    path, cut = run.store.path, chance.randrange(1, 5)
    kept = lose_the_end(path, cut, chance)
    again = resume(path, workplace.outside())
    await finish(again)
    assert groups(again, "planned")[: len(kept)] == kept, "it is planned once"
    assert sorted(groups(again, "trained")) == sorted(groups(again, "planned"))
    ids = Counter(episode.id for episode in again.store.reader.episodes)
    assert set(ids.values()) == {1}


def lose_the_end(path: Path, step: int, chance: random.Random) -> list[tuple[Any, ...]]:
    """What is on disk shortly after a step was learned; what was planned by then."""
    for later in range(step, 5):
        shutil.rmtree(path / "checkpoints" / f"{later:05d}")
        (path / "credits" / f"{later:05d}.jsonl").unlink()
    text = (path / "groups.jsonl").read_text().splitlines(keepends=True)
    read = [json.loads(line) for line in text]
    end = next(i for i, e in enumerate(read) if e["event"] == "trained" and e["step"] == step)
    (path / "groups.jsonl").write_text("".join(text[:end]))
    before = {(e["event"], tuple(g)) for e in read[:end] for g in e["groups"]}
    left = []
    for line in (path / "episodes.jsonl").read_text().splitlines(keepends=True):
        head = json.loads(line)
        group = (head["step"], head["task_id"], head["start"])
        if ("trained", group) in before or (("started", group) in before and chance.random() < 0.7):
            left.append(line)
    (path / "episodes.jsonl").write_text("".join(left))
    return [tuple(g) for e in read[:end] if e["event"] == "planned" for g in e["groups"]]


async def test_a_scheme_that_plans_something_else_when_it_is_resumed_is_refused(
    workplace: Any, finish: Finish, school: School
) -> None:
    class Other(Growing):
        def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
            return [Start(task_id=task.id, rollouts=1, name="other") for task in tasks]

    run = await workplace.ran(config(workplace, **OPTIONS))
    shutil.rmtree(run.store.path / "checkpoints" / "00004")
    school.scheme = Other
    with pytest.raises(PluginError, match="other starts for step 0 than before"):
        await finish(resume(run.store.path, workplace.outside()))


async def test_a_branch_may_plan_other_starts_after_its_first_steps(
    workplace: Any, finish: Finish, school: School
) -> None:
    class Control(Growing):
        def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
            if step < 2:
                return super().plan(step, tasks, rollouts)
            return [Start(task_id=task.id, rollouts=1, name="control") for task in tasks]

    run = await workplace.ran(config(workplace, **OPTIONS, staleness=1, concurrency=1))
    target = run.store.path.with_name("branch")
    branch_run(run.store.path, target, steps=2, config=run.store.reader.manifest["config"])
    school.scheme = Control
    again = resume(target, workplace.outside())
    assert (await finish(again)).outcome == "completed"
    assert groups(again, "trained")[:6] == groups(run, "trained")[:6]
    assert {name for _, _, name in groups(again, "trained")[6:]} == {"control"}


async def test_a_further_step_is_planned_for_what_was_dropped(
    workplace: Any, bench: Any, school: School
) -> None:
    async def agent(context: AgentContext) -> Stop:
        if context.conversation.episode_id == "0-t0-0":
            async with asyncio.timeout(60):
                while len(school.schemes[-1].learned) < 2:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.01)
        context.recorder.append(turn("done"))
        return Stop(reason="finished")

    bench.agent = agent
    run = await workplace.ran(config(workplace, steps=4, n=2, staleness=1, too_stale="drop"))
    assert (0, "t0", "") in groups(run, "dropped")
    assert [len(line["groups"]) for line in lines(run, "trained")] == [2, 4, 2, 4]
    assert any(step == 4 for step, *_ in groups(run, "trained"))


async def test_the_end_of_the_demonstrations_is_evaluated(workplace: Any, school: School) -> None:
    def demonstrating() -> Growing:
        made = Growing()
        made.demonstrations = 2
        return made

    school.scheme = demonstrating
    plain = {
        "tasks": {"type": "list", "n": 2},
        "agent": {"type": "bench"},
        "llm": {"type": "pupil"},
        "starts": {"type": "growing"},
        "trainer": {"type": "learner"},
        "evaluation": {"tasks": {"type": "list", "n": 1}, "every": 100, "rollouts": 1},
        "run": {"directory": str(workplace.directory), "schedule": "stream", "steps": 4},
    }
    run = await workplace.ran(structure_config(from_plain(plain), workplace.registry))
    evaluated = {e.step for e in run.store.reader.episodes if e.split == "evaluation"}
    assert evaluated == {0, 2, 4}


TELLING = {"t1", "t3"}
"""The tasks whose two rollouts end differently."""


async def by_task(context: AgentContext) -> Stop:
    _, task, rollout = context.conversation.episode_id.split("-")
    context.recorder.append(turn("done"))
    if task not in TELLING or rollout == "0":
        await context.sandbox.write("done", b"")
    return Stop(reason="finished")


@pytest.mark.parametrize("staleness", [0, 2])
async def test_refills_fill_a_step_with_groups_that_have_a_signal(
    workplace: Any, bench: Any, staleness: int
) -> None:
    bench.agent = by_task
    options = {"n": 5, "rollouts": 2, "tasks_per_step": 1, "steps": 4, "refills": 9}
    run = await workplace.ran(config(workplace, starts=False, staleness=staleness, **options))
    for line in lines(run, "trained"):
        telling = [task for _, task, _ in line["groups"] if task in TELLING]
        assert len(telling) == 1
    assert {id.split("-")[1] for ids in run.parts.trainer.seen.values() for id in ids} <= TELLING
    assert all(len(ids) == 2 for ids in run.parts.trainer.seen.values())


async def test_refills_are_bounded_and_resumed(workplace: Any, finish: Finish, bench: Any) -> None:
    async def succeed(context: AgentContext) -> Stop:
        context.recorder.append(turn("done"))
        await context.sandbox.write("done", b"")
        return Stop(reason="finished")

    bench.agent = succeed
    options = {"n": 5, "rollouts": 2, "tasks_per_step": 2, "steps": 3, "refills": 1}
    run = await workplace.ran(config(workplace, starts=False, **options))
    assert [len(line["groups"]) for line in lines(run, "trained")] == [4, 4, 4]
    assert run.parts.trainer.seen == {0: [], 1: [], 2: []}
    shutil.rmtree(run.store.path / "checkpoints" / "00002")
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    assert groups(again, "trained") == groups(run, "trained")


async def test_without_a_trainer_refills_are_credited_too(workplace: Any, bench: Any) -> None:
    bench.agent = by_task
    options = {"n": 5, "rollouts": 2, "tasks_per_step": 1, "steps": 2, "refills": 9}
    run = await workplace.ran(evolve(config(workplace, starts=False, **options), trainer=None))
    credited = {row.episode_id for row in run.store.reader.credits()}
    assert credited == {
        f"{step}-{task}-{i}" for step, task, _ in groups(run, "trained") for i in (0, 1)
    }
