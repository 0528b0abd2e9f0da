"""Answers in the styles of GSM8K, MATH, AIME and multiple choice, each with its verdict."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ale.protocols import Criterion
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale_criteria_answers.criteria import Choice, MathEqual, NumericAnswer
from ale_criteria_answers.options import ChoiceOptions, MathEqualOptions, NumericAnswerOptions

LINES = (Path(__file__).parent / "answers.tsv").read_text().splitlines()[1:]
MADE: Mapping[str, Callable[[str], Criterion]] = {
    "math_equal": lambda right: MathEqual(MathEqualOptions(expected=right)),
    "numeric_answer": lambda right: NumericAnswer(NumericAnswerOptions(expected=right)),
    "choice": lambda right: Choice(ChoiceOptions(expected=right, letters="ABCD")),
}


@pytest.mark.parametrize("name", MADE)
async def test_every_answer_has_its_verdict(name: str) -> None:
    sandbox = FolderSandbox()
    wrong = []
    for line in LINES:
        criterion, right, text, verdict = line.split("\t")
        if criterion != name:
            continue
        trajectory = builders.trajectory(builders.turn(text.replace("⏎", "\n")))
        score = await MADE[name](right).grade(builders.task(), trajectory, sandbox)
        if score.passed != (verdict == "right"):
            wrong.append(f"{line}: {score.detail}")
    await sandbox.close()
    assert not wrong, "\n".join(wrong)


def test_there_are_answers_of_both_kinds() -> None:
    for name in MADE:
        verdicts = [line.rpartition("\t")[2] for line in LINES if line.startswith(name)]
        assert min(verdicts.count("right"), verdicts.count("wrong")) >= 30
