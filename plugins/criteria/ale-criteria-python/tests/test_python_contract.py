"""The contract of every criterion, with the answer in the last message and in a file."""

import pytest

from ale.protocols import Sandbox
from ale.testing import builders
from ale.testing.criterion import CriterionContract
from ale.types import Trajectory
from ale_criteria_python.options import PythonTestsOptions
from ale_criteria_python.python_tests import PythonTests

TESTS = ("import json\nassert square(3) == json.loads('9')", "assert square(4) == 16")


class TestPythonTests(CriterionContract):
    @pytest.fixture
    def criterion(self) -> PythonTests:
        return PythonTests(PythonTestsOptions(tests=TESTS, answer="file:answer.py"))

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("answer.py", b"def square(x):\n    return x * x\n")

    async def make_it_fail(self, sandbox: Sandbox) -> None:
        await sandbox.write("answer.py", b"def square(x):\n    return x + x\n")


async def test_the_answer_is_the_last_block_of_the_last_message_that_has_one(
    sandbox: Sandbox,
) -> None:
    trajectory = builders.trajectory(
        builders.turn("```python\ndef square(x): return x\n```"),
        builders.turn("```python\ndef square(x): return x * x\n```"),
        builders.turn("Done."),
    )
    criterion = PythonTests(PythonTestsOptions(tests=TESTS))
    score = await criterion.grade(builders.task(), trajectory, sandbox)
    assert score.passed
    assert score.detail == (
        "2 of 2 tests passed; the answer is the last code block tagged python (lines 1 to 3) of "
        "message 2 of 3"
    )


async def test_without_code_the_score_says_so(sandbox: Sandbox) -> None:
    trajectory: Trajectory = builders.trajectory(builders.turn("I can't."))
    criterion = PythonTests(PythonTestsOptions(tests=TESTS))
    score = await criterion.grade(builders.task(), trajectory, sandbox)
    assert (score.value, score.detail) == (
        0.0,
        "no message of the agent has a block of Python code",
    )
    in_file = PythonTests(PythonTestsOptions(tests=TESTS, answer="file:answer.py"))
    score = await in_file.grade(builders.task(), trajectory, sandbox)
    assert (score.value, score.detail) == (0.0, "answer.py does not exist")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tests": ()}, "Length of 'tests' must be >= 1"),
        ({"tests": ("assert (",)}, "tests: not valid Python"),
        ({"tests": (TESTS[1], "")}, "tests: a test without code, which anything passes: ''"),
        ({"tests": ("# x",)}, "tests: a test without code, which anything passes: '# x'"),
        ({"tests": TESTS, "answer": "answer.py"}, "must be 'message' or 'file:NAME'"),
        ({"tests": TESTS, "answer": "file:../answer.py"}, "must not contain '..'"),
        ({"tests": TESTS, "python": "bin/python"}, "or an absolute path"),
    ],
)
def test_wrong_options_are_refused_before_a_run(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PythonTestsOptions(**options)  # type: ignore[arg-type]
