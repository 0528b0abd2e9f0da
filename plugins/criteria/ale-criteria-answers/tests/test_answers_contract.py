"""All four criteria keep the contract, with the answer in a file."""

import pytest

from ale.protocols import Sandbox
from ale.testing.criterion import CriterionContract
from ale_criteria_answers.criteria import Choice, ExactMatch, MathEqual, NumericAnswer
from ale_criteria_answers.options import (
    ChoiceOptions,
    ExactMatchOptions,
    MathEqualOptions,
    NumericAnswerOptions,
)

PLACE = "file:answer.txt"


class TestNumericAnswer(CriterionContract):
    @pytest.fixture
    def criterion(self) -> NumericAnswer:
        return NumericAnswer(NumericAnswerOptions(expected="18", answer=PLACE))

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("answer.txt", b"so it is $18.")

    async def make_it_fail(self, sandbox: Sandbox) -> None:
        await sandbox.write("answer.txt", b"so it is $19.")


class TestMathEqual(TestNumericAnswer):
    @pytest.fixture
    def criterion(self) -> MathEqual:
        return MathEqual(MathEqualOptions(expected=r"9 \cdot 2", answer=PLACE))

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("answer.txt", rb"\boxed{18}")


class TestExactMatch(TestNumericAnswer):
    @pytest.fixture
    def criterion(self) -> ExactMatch:
        return ExactMatch(ExactMatchOptions(expected="eighteen", answer=PLACE))

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("answer.txt", b"The answer is Eighteen.")


class TestChoice(TestNumericAnswer):
    @pytest.fixture
    def criterion(self) -> Choice:
        return Choice(ChoiceOptions(expected="b", answer=PLACE))

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("answer.txt", b"The answer is (B).")
