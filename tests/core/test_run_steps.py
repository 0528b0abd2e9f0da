"""Tasks of several steps: each is set up, worked on and graded before the next is begun."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import pytest

from ale._run.run import Run
from ale._run.start import resume
from ale.protocols import AgentContext, Sandbox
from ale.testing.builders import turn
from ale.types import Constraints, CriterionSpec, Episode, Limits, Score, Stop, Task


def stepped(n: int, reward: Literal["mean", "last"] = "mean") -> Callable[[int], Iterable[Task]]:
    """One task of n steps; step i has a file ``now`` that says so."""
    done = (CriterionSpec(type="done"),)
    steps = tuple(
        Task(id=f"t.{i}", goal=f"Goal {i}", setup_steps=(f"echo {i} >now",), criteria=done)
        for i in range(n)
    )
    return lambda _: [
        Task(id="t", goal="", steps=steps, steps_reward=reward, setup_steps=("echo all >first",))
    ]


def only(run: Run) -> Episode:
    (episode,) = run.store.reader.episodes
    return episode


async def note(context: AgentContext) -> Stop:
    context.recorder.append(turn(context.task.goal))
    now = (await context.sandbox.read("now")).decode().strip()
    assert context.task.id == f"t.{now}" == context.conversation.task_id
    await context.sandbox.write(f"done-{now}", b"")
    return Stop(reason="finished", detail=now)


def graded(values: Sequence[float], ends: Sequence[int] = ()) -> Callable[[Sandbox], Any]:
    async def grade(sandbox: Sandbox) -> Score:
        now = int(await sandbox.read("now"))
        await sandbox.read(f"done-{now}")
        await sandbox.read("first")
        value = values[now]
        return Score(criterion="done", passed=value == 1, value=value, ends_task=now in ends)

    return grade


async def test_steps_share_a_sandbox_and_the_reward_is_their_mean(
    bench: Any, workplace: Any
) -> None:
    bench.tasks, bench.agent, bench.grade = stepped(3), note, graded([1, 0.5, 0])
    run = await workplace.ran(workplace.config())
    episode = only(run)
    assert (episode.failure, episode.reward) == (None, 0.5)
    assert [score.value for score in episode.scores] == [1, 0.5, 0]
    answers = [turn.completion.message.content for turn in episode.trajectory.turns]
    assert answers == ["Goal 0", "Goal 1", "Goal 2"]
    assert episode.trajectory.stop.detail == "2"
    assert episode.metadata["steps"] == {"t.0": 1, "t.1": 2, "t.2": 3}


@pytest.mark.parametrize(("reward", "expected"), [("mean", 0.25), ("last", 0.5)])
async def test_a_score_may_end_the_task_and_later_steps_count_for_nothing(
    bench: Any, workplace: Any, reward: Any, expected: float
) -> None:
    bench.tasks, bench.agent = stepped(3, reward), note
    bench.grade = graded([0, 0.5, 1], ends=[1])
    run = await workplace.ran(workplace.config())
    episode = only(run)
    assert (episode.reward, list(episode.metadata["steps"])) == (expected, ["t.0", "t.1"])


async def test_a_step_that_breaks_leaves_no_reward_and_resume_does_the_task_again(
    bench: Any, workplace: Any
) -> None:
    async def breaks(context: AgentContext) -> Stop:
        if context.task.id == "t.1":
            raise ZeroDivisionError("a bug")
        return await note(context)

    bench.tasks, bench.agent, bench.grade = stepped(2), breaks, graded([1, 1])
    run = await workplace.ran(workplace.config(retries=0))
    broken = only(run)
    assert broken.reward is None
    assert broken.failure is not None
    assert broken.failure.kind == "ZeroDivisionError"
    again = resume(run.store.path, workplace.outside())
    assert [step.task.goal for step in again.tasks["train"][0].steps] == ["Goal 0", "Goal 1"]


async def test_a_step_has_a_time_limit_of_its_own(bench: Any, workplace: Any) -> None:
    limits: list[float | None] = []

    async def look(context: AgentContext) -> Stop:
        limits.append(context.limits.time_limit_s)
        return await note(context)

    def tasks(_: int) -> Iterable[Task]:
        (task,) = stepped(2)(1)
        first, second = task.steps
        quick = Task(
            id=second.id,
            goal=second.goal,
            setup_steps=second.setup_steps,
            criteria=second.criteria,
            constraints=Constraints(time_limit_s=7),
        )
        yield Task(id="t", goal="", steps=(first, quick), setup_steps=task.setup_steps)

    bench.tasks, bench.agent, bench.grade = tasks, look, graded([1, 1])
    bench.limits = Limits(time_limit_s=60)
    run = await workplace.ran(workplace.config())
    assert (only(run).reward, limits) == (1.0, [60, 7])
