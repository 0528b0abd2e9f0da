"""``schedule: stream``: a step learns from the first groups, and `--resume` knows which."""

import asyncio
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale._config import structure_config
from ale._registry import Registry
from ale._run.run import Run
from ale._run.schedule import Buffer
from ale._run.start import resume
from ale._store.groups import GroupEvent, GroupKey, Groups
from ale.errors import InputError
from ale.plugin import Component, hookimpl
from ale.protocols import AgentContext
from ale.runs import RunReader, branch_run
from ale.strict import from_plain
from ale.testing.builders import turn
from ale.testing.fakes import FakePolicy, FakeTrainer
from ale.types import Batch, Message, StepReport, Stop

Finish = Callable[[Run], Any]


class Learner(FakeTrainer):
    """Tells when it has learned."""

    def __init__(self) -> None:
        super().__init__()
        self.learned = [asyncio.Event() for _ in range(2)]
        """Set after the first and the second step."""

    async def step(self, batch: Batch) -> StepReport:
        report = await super().step(batch)
        for event in self.learned[: self.version]:
            event.set()
        return report


class School:
    """The learner, and a model that it trains."""

    def __init__(self) -> None:
        self.learners: list[Learner] = []

    def _learner(self, *_: Any) -> Learner:
        self.learners.append(Learner())
        return self.learners[-1]

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


def config(workplace: Any, *, n: int = 2, **run: Any) -> Any:
    plain = {
        "tasks": {"type": "list", "n": n},
        "agent": {"type": "bench"},
        "llm": {"type": "pupil"},
        "trainer": {"type": "learner"},
        "run": {
            "directory": str(workplace.directory),
            "keep_checkpoints": None,
            "schedule": "stream",
            **run,
        },
    }
    return structure_config(from_plain(plain), workplace.registry)


def lines(run: Run) -> list[dict[str, Any]]:
    whole, _, _ = (run.store.path / "groups.jsonl").read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def batches(run: Run) -> list[list[str]]:
    return [[f"{g[0]}-{g[1]}" for g in e["groups"]] for e in lines(run) if e["event"] == "trained"]


def metrics(run: Run) -> list[Mapping[str, float]]:
    events = run.store.reader.events()
    return [event["metrics"] for event in events if event["event"] == "step_finished"]


def seen(run: Run) -> dict[int, list[str]]:
    assert isinstance(run.parts.trainer, Learner)
    return run.parts.trainer.seen


def files(run: Run) -> dict[str, bytes]:
    names = ("episodes.jsonl", "credits/00000.jsonl", "credits/00001.jsonl", "credits/00002.jsonl")
    return {name: (run.store.path / name).read_bytes() for name in names}


async def test_without_staleness_the_result_is_that_of_steps_to_the_byte(workplace: Any) -> None:
    options = {"n": 3, "steps": 3, "tasks_per_step": 2, "rollouts": 2, "concurrency": 1}
    found = {}
    for schedule in ("steps", "stream"):
        run = await workplace.ran(
            config(workplace, **options, schedule=schedule, deterministic=True, name=schedule)
        )
        found[schedule] = (files(run), seen(run))
    assert found["steps"] == found["stream"]
    assert len(found["stream"][1][2]) == 4


def slow_for(steps: int, school: School) -> Callable[[AgentContext], Any]:
    """The first episode ends only after so many steps were learned."""

    async def agent(context: AgentContext) -> Stop:
        if context.conversation.episode_id == "0-t0-0":
            await asyncio.wait_for(school.learners[-1].learned[steps - 1].wait(), 60)
        context.recorder.append(turn("done"))
        return Stop(reason="finished")

    return agent


@pytest.fixture
def one_is_slow(bench: Any, school: School) -> None:
    bench.agent = slow_for(1, school)


@pytest.fixture
def one_is_very_slow(bench: Any, school: School) -> None:
    bench.agent = slow_for(2, school)


@pytest.mark.usefixtures("one_is_slow")
async def test_a_slow_group_holds_up_no_step_and_is_learned_when_it_is_complete(
    workplace: Any,
) -> None:
    run = await workplace.ran(config(workplace, steps=4, staleness=1, rollouts=2))
    # Without the slow group; which two of the other three are complete first is open.
    assert set(batches(run)[0]) < {"0-t1", "1-t0", "1-t1"}
    assert "0-t0" in batches(run)[1]
    every = [group for batch in batches(run) for group in batch]
    assert sorted(every) == sorted(f"{step}-t{i}" for step in range(4) for i in range(2))
    assert seen(run) == {
        step: [f"{group}-{rollout}" for group in sorted(batch, key=by_task) for rollout in range(2)]
        for step, batch in enumerate(batches(run))
    }
    rows = list(run.store.reader.credits())
    assert [row.episode_id for row in rows] == [
        each for step in seen(run).values() for each in step
    ]
    assert {(row.episode_id, row.step) for row in rows} == {
        (each, step) for step, found in seen(run).items() for each in found
    }
    assert metrics(run)[0]["staleness_max"] == 0
    assert metrics(run)[1]["staleness_max"] == 1


def by_task(group: str) -> tuple[str, str]:
    step, _, task = group.partition("-")
    return task, step


@pytest.mark.usefixtures("one_is_slow")
async def test_without_a_stream_the_step_waits_for_it(workplace: Any, finish: Finish) -> None:
    plain = config(workplace, steps=2, staleness=1, schedule="steps")
    run = workplace.prepared(plain)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(finish(run), 0.5)
    assert seen(run) == {}


async def test_every_staleness_is_within_the_limit_where_no_group_overtakes_another(
    workplace: Any,
) -> None:
    run = await workplace.ran(config(workplace, steps=6, staleness=2, concurrency=1))
    assert all(found["staleness_max"] <= 2 for found in metrics(run))
    assert all(found["groups_too_stale"] == 0 for found in metrics(run))
    assert len(seen(run)) == 6


@pytest.mark.usefixtures("one_is_very_slow")
async def test_a_group_past_the_limit_is_trained_on_and_counted(workplace: Any) -> None:
    run = await workplace.ran(config(workplace, steps=4, staleness=1))
    assert sum(found["groups_too_stale"] for found in metrics(run)) == 1
    assert max(found["staleness_max"] for found in metrics(run)) >= 2
    assert sum(found["groups_dropped"] for found in metrics(run)) == 0


@pytest.mark.usefixtures("one_is_very_slow")
async def test_a_group_past_the_limit_is_dropped_and_another_drawn(workplace: Any) -> None:
    run = await workplace.ran(config(workplace, steps=4, staleness=1, too_stale="drop"))
    every = [group for batch in batches(run) for group in batch]
    assert len(set(every)) == 8
    assert "0-t0" not in every
    assert "4-t0" in every, "drawn in its place"
    dropped = [tuple(g) for e in lines(run) if e["event"] == "dropped" for g in e["groups"]]
    assert (0, "t0", "") in dropped
    assert sum(found["groups_dropped"] for found in metrics(run)) == len(dropped)
    assert max(found["staleness_max"] for found in metrics(run)) <= 1
    assert "0-t0-0" in {episode.id for episode in run.store.reader.episodes}


async def test_the_newest_groups_may_come_first(workplace: Any, finish: Finish, bench: Any) -> None:
    chance = random.Random(5)

    async def agent(context: AgentContext) -> Stop:
        await asyncio.sleep(chance.choice((0, 0, 0, 0.05)))
        context.recorder.append(turn("done"))
        return Stop(reason="finished")

    bench.agent = agent
    options = {"steps": 6, "staleness": 2, "too_stale": "drop", "take_first": "newest"}
    run = workplace.prepared(config(workplace, **options))
    assert (await finish(run)).outcome == "completed"
    every = [group for batch in batches(run) for group in batch]
    assert len(set(every)) == len(every) == 12
    assert max(found["staleness_max"] for found in metrics(run)) <= 2


def buffer_of(*started: int, newest_first: bool = False) -> Buffer:
    """Of groups that the policy had learned from so many steps for, the last one added first."""
    keys = [GroupKey(0, f"t{i}") for i in range(len(started))]
    groups = Groups(
        GroupEvent(event="started", step=step, groups=(key,))
        for key, step in zip(keys, started, strict=True)
    )
    buffer = Buffer(groups, newest_first)
    for number in reversed(range(len(keys))):
        buffer.add(number, keys[number])
    return buffer


def test_the_oldest_or_the_newest_groups_are_taken_first_in_the_order_of_drawing() -> None:
    names = [key.task_id for key in buffer_of(0, 0, 1, 1).take(2)]
    assert names == ["t0", "t1"]
    names = [key.task_id for key in buffer_of(0, 0, 1, 1, newest_first=True).take(3)]
    assert names == ["t1", "t2", "t3"]


def test_what_is_taken_or_too_old_is_gone() -> None:
    buffer = buffer_of(0, 3, 1, 2)
    assert [key.task_id for key in buffer.older_than(2)] == ["t0", "t2"]
    assert [key.task_id for key in buffer.take(1)] == ["t1"]
    assert len(buffer) == 1
    assert buffer.older_than(2) == []


@pytest.mark.parametrize("seed", range(12))
async def test_a_run_that_lost_its_end_at_any_point_uses_every_episode_once(
    workplace: Any, finish: Finish, bench: Any, seed: int
) -> None:
    """What `kill -9` leaves: each file ends at some moment, and a checkpoint may be missing."""
    chance = random.Random(seed)

    async def agent(context: AgentContext) -> Stop:
        await asyncio.sleep(chance.choice((0, 0, 0.02)))
        context.recorder.append(turn("done"))
        return Stop(reason="finished")

    bench.agent = agent
    options = {"n": 3, "steps": 5, "tasks_per_step": 2, "rollouts": 2, "staleness": 2}
    run = await workplace.ran(config(workplace, **options, concurrency=5))
    path = run.store.path
    before = batches(run)
    cut_short(path, chance.randrange(5), chance)
    kept = batches(run)
    assert kept == before[: len(kept)]
    again = resume(path, workplace.outside())
    stored = {episode.id for episode in RunReader(path).episodes}
    await finish(again)
    assert batches(again)[: len(kept)] == kept, "what was chosen stays chosen"
    every = [group for batch in batches(again) for group in batch]
    assert sorted(every) == sorted(set(every))
    assert [len(batch) for batch in batches(again)] == [2] * 5
    ids = Counter(episode.id for episode in again.store.reader.episodes)
    assert set(ids.values()) == {1}
    assert set(ids) >= stored, "nothing that was there is sampled again"
    assert len(ids) == 20, "nothing was sampled in vain"
    begun = [
        (e["step"], *group)
        for e in lines(again)
        for group in e["groups"]
        if e["event"] == "started"
    ]
    assert all(drawn_for <= version + 2 for version, drawn_for, *_ in begun), "within the limit"
    assert [f["staleness_max"] for f in metrics(again)] == [
        max(again.store.groups.ages(step)) for step in range(5)
    ]


async def test_a_step_that_was_learned_from_needs_the_line_with_its_groups(
    workplace: Any, finish: Finish
) -> None:
    """As in a copy that was made while the run was running: checkpoints are the newest."""
    run = await workplace.ran(config(workplace, steps=3))
    path, chosen = run.store.path, batches(run)
    leave(path / "episodes.jsonl", 2)
    leave(path / "groups.jsonl", 3)
    assert len(batches(run)) == 1
    with pytest.raises(InputError, match="lacks the line 'trained' of step 1") as raised:
        await asyncio.wait_for(finish(resume(path, workplace.outside())), 10)
    assert raised.value.problems[0].file == str(path / "groups.jsonl")
    for name in ("credits", "checkpoints"):  # what the error advises
        (path / name).rename(path / f"{name}-before")
    again = resume(path, workplace.outside())
    await finish(again)
    assert batches(again) == chosen
    assert set(seen(again)) == {0, 1, 2}


async def test_a_group_needs_the_line_that_says_when_it_was_started(
    workplace: Any, finish: Finish
) -> None:
    run = await workplace.ran(config(workplace, steps=3))
    path = run.store.path
    shutil.rmtree(path / "checkpoints")
    leave(path / "groups.jsonl", 4)
    with pytest.raises(InputError, match="'started' of the group of 1-t1-0, which is stored"):
        await finish(resume(path, workplace.outside()))


def leave(file: Path, n: int) -> None:
    """Remove all but the first lines."""
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:n]))


def cut_short(path: Path, step: int, chance: random.Random) -> None:
    """Remove a checkpoint and all that came after it, and some of what ran beside it."""
    for later in range(step, 5):
        shutil.rmtree(path / "checkpoints" / f"{later:05d}")
        (path / "credits" / f"{later:05d}.jsonl").unlink()
    events = (path / "events.jsonl").read_text().splitlines(keepends=True)
    finished = '"event":"step_finished"'
    left = [e for e in events if finished not in e or json.loads(e)["step"] < step]
    (path / "events.jsonl").write_text("".join(left))
    of_steps = (path / "groups.jsonl").read_text().splitlines(keepends=True)
    read = [json.loads(line) for line in of_steps]
    first = next(i for i, e in enumerate(read) if e["event"] == "trained" and e["step"] == step)
    first += chance.randrange(2)  # killed before its groups were chosen, or after
    (path / "groups.jsonl").write_text("".join(of_steps[:first]) + '{"schema":1,"ev')
    begun = {tuple(g) for e in read[:first] if e["event"] == "started" for g in e["groups"]}
    used = {tuple(g) for e in read[:first] if e["event"] == "trained" for g in e["groups"]}
    episodes = []
    for line in (path / "episodes.jsonl").read_text().splitlines(keepends=True):
        head = json.loads(line)
        group = (head["step"], head["task_id"], head["start"])
        if group in used or (group in begun and chance.random() < 0.5):
            episodes.append(line)
    (path / "episodes.jsonl").write_text("".join(episodes) + '{"schema":1,"id"')


async def test_a_step_whose_groups_were_chosen_is_learned_from_these_after_a_kill(
    workplace: Any, finish: Finish
) -> None:
    run = await workplace.ran(config(workplace, steps=3, staleness=1))
    chosen = batches(run)
    for step in (1, 2):
        shutil.rmtree(run.store.path / "checkpoints" / f"{step:05d}")
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    assert batches(again) == chosen
    assert set(seen(again)) == {1, 2}
    assert seen(again)[1] == seen(run)[1]


async def test_what_runs_when_a_run_is_drained_is_finished_and_used_later(
    workplace: Any, finish: Finish, bench: Any
) -> None:
    async def agent(context: AgentContext) -> Stop:
        if context.conversation.episode_id == "1-t1-0":
            run.interrupt.draining = True
        await asyncio.sleep(0)
        context.recorder.append(turn("done"))
        return Stop(reason="finished")

    bench.agent = agent
    run = workplace.prepared(config(workplace, steps=4, staleness=1, concurrency=2))
    assert (await finish(run)).outcome == "drained"
    assert len(seen(run)) < 4
    again = resume(run.store.path, workplace.outside())
    assert (await finish(again)).outcome == "completed"
    every = [group for batch in batches(again) for group in batch]
    assert sorted(every) == sorted(f"{step}-t{i}" for step in range(4) for i in range(2))


async def test_a_run_without_a_trainer_is_credited_by_what_was_first(
    workplace: Any, finish: Finish
) -> None:
    plain = evolve(config(workplace, steps=2, staleness=1), trainer=None)
    run = await workplace.ran(plain)
    again = resume(run.store.path, workplace.outside())
    await finish(again)
    assert len(batches(again)) == 2
    assert len(list(again.store.reader.credits())) == 4


async def test_a_step_is_that_of_its_batch_for_whoever_reads_the_run(
    workplace: Any, one_is_slow: None
) -> None:
    run = await workplace.ran(config(workplace, steps=2, staleness=1))
    index = RunReader(run.store.path).index()
    assert index.steps() == [0, 1]
    assert [len(list(index.rewards(step))) for step in (0, 1)] == [2, 2]
    stored = run.store.reader.episodes
    read = [[stored.at(offset).id for offset in index.offsets(step)] for step in (0, 1)]
    assert read == [seen(run)[0], seen(run)[1]]
    assert [index.statistics(step).n_episodes for step in (0, 1)] == [2, 2]
    assert index.broken(0) == 0


async def test_a_branch_has_the_first_batches_and_goes_on(workplace: Any, finish: Finish) -> None:
    run = await workplace.ran(config(workplace, steps=4, staleness=1))
    target = run.store.path.with_name("branch")
    branch_run(run.store.path, target, steps=2, config=run.store.reader.manifest["config"])
    again = resume(target, workplace.outside())
    await finish(again)
    assert batches(again)[:2] == batches(run)[:2]
    assert set(seen(again)) == {2, 3}
    assert len({group for batch in batches(again) for group in batch}) == 8


async def test_episodes_that_broke_before_any_worked_are_sampled_again(
    workplace: Any, finish: Finish, bench: Any
) -> None:
    def refuse(_: object) -> None:
        raise OSError("no space")

    bench.open_hook = refuse
    options = {"steps": 3, "n": 4, "tasks_per_step": 1, "stop_after_broken": 3, "retries": 0}
    plain = evolve(config(workplace, **options, concurrency=1), trainer=None)
    run = workplace.prepared(plain)
    assert (await finish(run)).outcome == "stopped"
    assert len(batches(run)) == 2
    bench.open_hook = lambda _: None
    again = resume(run.store.path, workplace.outside())
    assert batches(again) == []
    assert (await finish(again)).outcome == "completed"
    assert len(list(again.store.reader.credits())) == 3
    assert all(episode.reward == 1 for episode in again.store.reader.episodes)


@pytest.mark.parametrize(
    ("options", "path", "message"),
    [
        ({"schedule": "steps", "too_stale": "drop"}, "run.too_stale", "run.schedule: stream"),
        ({"take_first": "newest"}, "run.take_first", "run.too_stale: drop"),
    ],
)
def test_options_that_contradict_the_schedule_are_refused(
    workplace: Any, options: dict[str, Any], path: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        workplace.prepared(config(workplace, **options))
    assert caught.value.problems[0].path == path
