"""The kit for criteria passes a right one and fails wrong ones, each for its own reason."""

import inspect
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ale.errors import SandboxError
from ale.protocols import Sandbox
from ale.testing import builders
from ale.testing.criterion import CriterionContract, assert_score
from ale.testing.fakes import FolderSandbox
from ale.types import Score, Task, Trajectory, replace

Judge = Callable[[Sandbox], Awaitable[Score]]


def scored(passed: bool, **fields: Any) -> Score:
    detail = "ok" if passed else "there is no 'answer'"
    return Score(
        **{
            "criterion": "answer",
            "passed": passed,
            "value": float(passed),
            "detail": detail,
            **fields,
        }
    )


async def _right(sandbox: Sandbox) -> Score:
    try:
        await sandbox.exec(["/bin/true"])
        await sandbox.read("answer")
    except FileNotFoundError:
        return scored(False)
    return scored(True)


class Answered:
    """Passes when the file ``answer`` is there, spoiled by `judge`."""

    def __init__(self, judge: Judge = _right) -> None:
        self._judge = judge

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        return await self._judge(sandbox)


class TestARightCriterion(CriterionContract):
    @pytest.fixture
    def criterion(self) -> Answered:
        return Answered()

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("answer", b"42")


async def _always(sandbox: Sandbox) -> Score:
    await sandbox.exec(["/bin/true"])
    return scored(True)


async def _never(sandbox: Sandbox) -> Score:
    await sandbox.exec(["/bin/true"])
    return scored(False)


async def _silent(sandbox: Sandbox) -> Score:
    score = await _right(sandbox)
    return scored(score.passed, detail="")


async def _half(sandbox: Sandbox) -> Score:
    score = await _right(sandbox)
    return scored(score.passed, value=0.5)


async def _zero_when_gone(sandbox: Sandbox) -> Score:
    try:
        return await _right(sandbox)
    except SandboxError:
        return scored(False)


async def _leaves_a_file(sandbox: Sandbox) -> Score:
    await sandbox.write(".cache/graded", b"")
    return await _right(sandbox)


async def _changes_a_mode(sandbox: Sandbox) -> Score:
    await sandbox.exec("test ! -e answer || chmod 700 answer")
    return await _right(sandbox)


async def _trusts_ls(sandbox: Sandbox) -> Score:
    return scored((await sandbox.exec('test "$(ls -d answer)" = answer')).exit_code == 0)


async def _trusts_grep(sandbox: Sandbox) -> Score:
    return scored((await sandbox.exec("grep -q 42 answer")).exit_code == 0)


async def _trusts_python(sandbox: Sandbox) -> Score:
    code = "import os, sys; sys.exit(not os.path.exists('answer'))"
    return scored((await sandbox.exec(["/usr/bin/python3", "-c", code])).exit_code == 0)


async def _uses_up_what_it_looks_at(sandbox: Sandbox) -> Score:
    score = await _right(sandbox)
    await sandbox.exec(["/bin/rm", "-f", "answer"])
    return score


class Shares:
    """Keeps the sandbox to itself: a criterion is built once and asked by many episodes at once."""

    def __init__(self) -> None:
        self._sandbox: Sandbox | None = None

    async def __call__(self, sandbox: Sandbox) -> Score:
        self._sandbox = sandbox
        await sandbox.exec(["/bin/true"])
        return await _right(self._sandbox)


WRONG: list[tuple[str, Judge]] = [
    ("test_it_fails_what_should_fail_and_says_why", _always),
    ("test_it_passes_what_should_pass", _never),
    ("test_it_fails_what_should_fail_and_says_why", _silent),
    ("test_it_passes_what_should_pass", _half),
    ("test_a_sandbox_that_is_gone_is_an_error_and_not_a_score", _zero_when_gone),
    ("test_grading_leaves_the_workspace_as_it_was", _leaves_a_file),
    ("test_grading_leaves_the_workspace_as_it_was", _changes_a_mode),
    ("test_grading_twice_gives_the_same_verdict", _uses_up_what_it_looks_at),
    ("test_two_gradings_at_once_do_not_mix", Shares()),
    ("test_what_the_agent_planted_does_not_turn_a_failure_into_a_pass", _trusts_grep),
    ("test_what_the_agent_planted_does_not_turn_a_failure_into_a_pass", _trusts_python),
    ("test_what_the_agent_planted_does_not_turn_a_pass_into_a_failure", _trusts_ls),
]


async def probe(test: str, judge: Judge, tmp_path: Path) -> None:
    """Run one test of the kit against this criterion."""
    kit = TestARightCriterion()
    first, second = FolderSandbox(), FolderSandbox()
    given = {
        "criterion": Answered(judge),
        "task": builders.task(),
        "trajectory": builders.trajectory(),
        "sandbox": first,
        "other_sandbox": second,
        "tmp_path": tmp_path,
    }
    method = getattr(kit, test)
    try:
        await method(**{name: given[name] for name in inspect.signature(method).parameters})
    finally:
        await first.close()
        await second.close()


@pytest.mark.parametrize(("test", "judge"), WRONG)
async def test_a_wrong_criterion_is_caught(test: str, judge: Judge, tmp_path: Path) -> None:
    await probe(test, _right, tmp_path / "right")
    with pytest.raises(AssertionError):
        await probe(test, judge, tmp_path / "wrong")


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (scored(True, value=0.5), "passed is True, value 0.5"),
        (scored(False, value=1.0), "passed is False, value 1.0"),
        (scored(False, value=math.nan), "the value is nan"),
        (scored(False, value=-0.1), "outside"),
        (scored(True, criterion=""), "does not name"),
        (scored(True, weight=2.0), "weight"),
        (replace(scored(True), passed=1), "passed is 1"),
    ],
)
def test_a_score_that_a_run_could_not_use_is_caught(score: Score, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        assert_score(score)
