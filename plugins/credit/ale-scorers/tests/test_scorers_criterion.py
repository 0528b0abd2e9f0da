"""The criterion ``step_scores``."""

from collections.abc import Sequence
from typing import Any

import pytest

from ale.errors import GradingError
from ale.protocols import Criterion, Sandbox, ScoringContext
from ale.testing.builders import task, trajectory, turn
from ale.testing.criterion import CriterionContract
from ale.testing.fakes import FolderBackend
from ale.types import Chunk, SandboxSpec, Score, StepScore, Task, Trajectory
from ale_scorers.criterion import StepScores
from ale_scorers.options import StepScoresOptions


class Texts:
    """The value of a turn is its text; other texts have none."""

    async def score(self, context: ScoringContext, chunks: Sequence[Chunk]) -> list[StepScore]:
        texts = [each.completion.message.content for each in context.episode.turns]
        return [
            StepScore(value=float(text), text=f"it says {text}")
            if text[:1].isdigit()
            else StepScore(abstained="no number")
            for text in texts
        ]

    async def aclose(self) -> None: ...


async def graded(reduce: Any, *texts: str, floor: float = 1.0, scorer: Any = None) -> Score:
    options = StepScoresOptions(scorer=scorer or Texts(), reduce=reduce, floor=floor)
    async with FolderBackend().open(SandboxSpec()) as sandbox:
        return await StepScores(options).grade(task(), trajectory(*map(turn, texts)), sandbox)


@pytest.mark.parametrize(("reduce", "value"), [("mean", 0.5), ("min", 0.25), ("last", 0.75)])
async def test_the_value_is_made_of_the_turns_that_have_one(reduce: str, value: float) -> None:
    score = await graded(reduce, "0.25", "hm", "0.75", "bye", floor=0.5)
    assert (score.value, score.passed) == (value, False)
    assert score.detail == f"{reduce} of 2 of 4 turns; lowest: it says 0.25"


async def test_an_episode_without_a_value_is_broken_and_not_0() -> None:
    with pytest.raises(GradingError, match="0 of 2 turns have a score: no number"):
        await graded("mean", "hm", "bye", floor=0)
    with pytest.raises(GradingError, match="there is no turn"):
        await graded("mean", floor=0)


async def test_turns_that_nobody_judged_do_not_pass() -> None:
    with pytest.raises(GradingError, match=r"1 of 2 turns have a score: no number$"):
        await graded("mean", "1", "hm")
    with pytest.raises(GradingError, match="1 of 3 turns"):
        await graded("mean", "1", "hm", "bye", floor=0.5)
    assert (await graded("mean", "1", "1")).passed
    assert (await graded("last", "hm", "bye", "1", floor=0)).passed


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -0.5, 1.5])
async def test_a_value_that_is_no_score_is_refused(value: float) -> None:
    class Wrong(Texts):
        async def score(self, context: ScoringContext, chunks: Sequence[Chunk]) -> list[StepScore]:
            return [StepScore(value=value) for _ in chunks]

    with pytest.raises(GradingError, match="expected a number from 0 to 1"):
        await graded("mean", "1", "1", scorer=Wrong())


async def test_a_scorer_that_leaves_turns_out_is_refused() -> None:
    class Few(Texts):
        async def score(self, context: ScoringContext, chunks: Sequence[Chunk]) -> list[StepScore]:
            return [StepScore(value=1.0)]

    with pytest.raises(GradingError, match="1 scores for 2 turns"):
        await graded("mean", "1", "1", scorer=Few())


class TestStepScores(CriterionContract):
    """It reads the trajectory alone, so the kit's sandboxes say what the agent's turns were."""

    @pytest.fixture
    def criterion(self) -> Criterion:
        return _BySandbox()

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("turn", b"1")

    async def make_it_fail(self, sandbox: Sandbox) -> None:
        await sandbox.write("turn", b"0")


class _BySandbox:
    async def grade(self, task: Task, trajectory_: Trajectory, sandbox: Sandbox) -> Score:
        text = (await sandbox.read("turn")).decode()
        inner = StepScores(StepScoresOptions(scorer=Texts()))
        return await inner.grade(task, trajectory(turn(text)), sandbox)
