"""A check that lacks what nobody asked the agent for is no verdict on it."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ale._run.grading import Damage, Places, grade
from ale._run.parts import PreparedTask
from ale._run.timeouts import Supervisor
from ale.errors import GradingError, SandboxError
from ale.protocols import Sandbox
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import CriterionSpec, Score, Task, Trajectory


class Needs:
    """Fails, or passes, and lacks what no file of a sandbox is named like."""

    def __init__(self, value: float, *, answers: bool = True) -> None:
        self.value, self.answers = value, answers
        self.asked: list[bool] = []
        self.passes_without_tools = False

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        return Score(criterion="needs", passed=self.value == 1, value=self.value)

    async def lacking(self, task: Task, sandbox: Sandbox, *, untouched: bool) -> Collection[str]:
        self.asked.append(untouched)
        if not self.answers:
            raise SandboxError("gone")
        there = (await sandbox.exec("ls")).stdout.decode().split()
        return {"jq", "cmp"} - {*there}


async def graded(criterion: Any, *, before: str = "", after: str = "") -> Score:
    own = FolderSandbox()
    await own.exec(f"touch x {after}")

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Sandbox]:
        sandbox = FolderSandbox()
        await sandbox.exec(f"touch x {before}")
        yield sandbox
        await sandbox.close()

    step = PreparedTask(task=builders.task(), criteria=((CriterionSpec(type="needs"), criterion),))
    try:
        places = Places(own, True, fresh)
        (score,) = await grade(step, builders.trajectory(), places, Supervisor(), 20.0, Damage())
    finally:
        await own.close()
    return score


async def test_what_was_missing_before_and_after_breaks_the_episode() -> None:
    with pytest.raises(GradingError, match="the task's own sandbox lacks 'jq', also before"):
        await graded(Needs(0.0), before="cmp")


async def test_what_the_agent_took_away_is_its_failure() -> None:
    criterion = Needs(0.5)
    assert (await graded(criterion, before="cmp jq")).value == 0.5
    assert criterion.asked == [False, True]


async def test_a_pass_for_want_of_a_program_is_none() -> None:
    criterion = Needs(1.0)
    criterion.passes_without_tools = True
    score = await graded(criterion, before="cmp jq", after="jq")
    assert (score.value, score.passed) == (0.0, False)
    assert score.detail.endswith("has no 'cmp' any more, which it had before the agent")
    with pytest.raises(GradingError, match="the task's own sandbox lacks 'cmp', also before"):
        await graded(criterion, before="jq", after="jq")
    assert (await graded(criterion, before="cmp jq", after="cmp jq")).passed


async def test_nothing_is_looked_for_twice_without_need() -> None:
    passes, whole = Needs(1.0), Needs(0.0)
    assert (await graded(passes)).passed
    assert not (await graded(whole, after="cmp jq")).passed
    assert (passes.asked, whole.asked) == ([], [False])


async def test_an_agent_that_broke_its_sandbox_gains_nothing() -> None:
    assert (await graded(Needs(0.0, answers=False))).value == 0.0
