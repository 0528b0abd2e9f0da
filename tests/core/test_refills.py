"""A step draws further tasks in place of those whose rewards are all equal, up to a bound."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale._config import load_config
from ale._run.run import Run
from ale._run.start import check_run, resume
from ale.errors import InputError
from ale.protocols import AgentContext
from ale.testing.builders import turn
from ale.testing.fakes import FakeTrainer
from ale.types import Stop

Finish = Callable[[Run], Awaitable[Any]]


TELLING = {"t3", "t7", "t11"}
"""The tasks whose two rollouts end differently."""


async def by_task(context: AgentContext) -> Stop:
    _, task, rollout = context.conversation.episode_id.split("-")
    context.recorder.append(turn("done"))
    if task not in TELLING or rollout == "0":
        await context.sandbox.write("done", b"")
    return Stop(reason="finished")


@pytest.fixture(autouse=True)
def agent(bench: Any) -> None:
    bench.agent = by_task


def prepared(workplace: Any, **run: Any) -> tuple[Run, FakeTrainer]:
    options = {"n": 12, "rollouts": 2, "tasks_per_step": 3, "concurrency": 2, **run}
    made = workplace.prepared(workplace.config(**options))
    return with_learner(made)


def with_learner(run: Run) -> tuple[Run, FakeTrainer]:
    learner = FakeTrainer()
    return evolve(run, parts=evolve(run.parts, trainer=learner)), learner


def learned(learner: FakeTrainer) -> set[str]:
    """Ids of the tasks of the first step."""
    return {group.group.task_id for group in learner.batches[0].groups}


def sampled(run: Run) -> list[str]:
    """Ids of the stored episodes, in any order."""
    return sorted(episode.id for episode in run.store.reader.episodes)


async def test_refills_fill_the_step_and_the_trainer_gets_what_has_a_signal(
    workplace: Any, finish: Finish
) -> None:
    run, learner = prepared(workplace, refills=9)
    await finish(run)
    assert learned(learner) == TELLING
    ids = sampled(run)
    assert len(ids) == len(set(ids))
    assert {each.split("-")[1] for each in ids} >= TELLING
    report = run.store.checkpoints.report(0)
    assert report.metrics["groups_with_signal"] == pytest.approx(3 / (len(ids) / 2))
    assert report.metrics["mean_return"] == report.metrics["mean_reward"] < 1, "of all episodes"


async def test_without_refills_the_trainer_gets_every_group(workplace: Any, finish: Finish) -> None:
    run, learner = prepared(workplace)
    await finish(run)
    assert len(learned(learner)) == 3
    assert len(sampled(run)) == 6


async def test_refills_are_bounded(workplace: Any, finish: Finish) -> None:
    run, learner = prepared(workplace, refills=1)
    await finish(run)
    tasks = {each.split("-")[1] for each in sampled(run)}
    first = {each.split("-")[1] for each in sampled(run)} & TELLING
    assert 3 <= len(tasks) <= 6
    assert learned(learner) == first


async def test_all_tasks_are_the_end_of_the_refills(
    workplace: Any, finish: Finish, bench: Any
) -> None:

    async def succeed(context: AgentContext) -> Stop:
        await context.sandbox.write("done", b"")
        context.recorder.append(turn("done"))
        return Stop(reason="finished")

    bench.agent = succeed
    run, learner = prepared(workplace, refills=99)
    await finish(run)
    assert len(sampled(run)) == 24
    assert learned(learner) == set()


@pytest.mark.parametrize("kept", [1, 7, 9, 11])
async def test_a_resumed_step_draws_the_same_refills(
    workplace: Any, finish: Finish, kept: int
) -> None:
    """Killed after so many episodes, in the middle of a refill or before any."""
    run, _ = prepared(workplace, refills=9)
    await finish(run)
    wanted = sampled(run)
    assert len(wanted) > 11
    path = run.store.path
    lines = (path / "episodes.jsonl").read_text().splitlines(keepends=True)
    (path / "episodes.jsonl").write_text("".join(lines[:kept]))
    (path / "credits" / "00000.jsonl").unlink()
    for each in (path / "checkpoints").glob("*/*"):
        each.unlink()
    for each in (path / "checkpoints").iterdir():
        each.rmdir()
    again, learner = with_learner(resume(path, workplace.outside()))
    await finish(again)
    assert sampled(again) == wanted
    assert learned(learner) == TELLING


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({"rollouts": 1}, "a group is one rollout"),
        ({"tasks_per_step": None}, "a step has all tasks"),
    ],
)
def test_refills_that_could_never_draw_anything_are_refused(
    workplace: Any, run: dict[str, Any], message: str
) -> None:
    options = {"n": 12, "rollouts": 2, "tasks_per_step": 3, "refills": 1, **run}
    with pytest.raises(InputError, match=message) as caught:
        check_run(workplace.config(**options), "test", workplace.outside())
    assert [problem.path for problem in caught.value.problems] == ["run.refills"]


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        (
            "run:\n  rollouts: 1\n  tasks_per_step: 1\n  refills: 2\n  too_stale: drop\n",
            [("run.refills", 6), ("run.too_stale", 7)],
        ),
        ("sandbox:\n  type: folder\n  require: [network]\n", [("sandbox.require", 5)]),
    ],
)
def test_options_that_contradict_each_other_are_named_with_their_lines(
    workplace: Any, tmp_path: Path, sections: str, expected: list[tuple[str, int]]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"tasks: {{type: list}}\nagent: {{type: bench}}\n{sections}")
    with pytest.raises(InputError) as caught:
        check_run(load_config(file, workplace.registry), "test", workplace.outside())
    assert [(each.path, each.line) for each in caught.value.problems] == expected
    assert {each.file for each in caught.value.problems} == {str(file)}
