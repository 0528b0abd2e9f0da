"""Criteria that look at the workspace are graded in a judge, where the sandbox can open one."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ale._run.grading import Damage, Places, grade
from ale._run.parts import PreparedTask
from ale._run.timeouts import Supervisor
from ale.errors import NoVerdictError, SandboxDamagedError, SandboxError
from ale.protocols import Sandbox
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import CarriedChange, CriterionSpec, Score, Task, Trajectory, replace


class Judge:
    """A folder that nobody has worked in; the agent's tool is used unless it is left out."""

    def __init__(self, sandbox: Sandbox, used: Sequence[str]) -> None:
        self.sandbox = sandbox
        self._used = used

    async def used(self) -> Sequence[CarriedChange]:
        return [CarriedChange(path=path, kind="added") for path in self._used]

    async def watch(self, folders: Mapping[str, int]) -> None:
        """Nothing comes and goes."""

    async def made(self) -> Sequence[CarriedChange]:
        return []

    async def has(self, path: str, *, image: bool = False) -> bool:
        return False


class Opens(FolderSandbox):
    """A sandbox that opens judges."""

    capabilities = replace(FolderSandbox.capabilities, features=("judge",))
    used: Sequence[str] = ("/usr/bin/grep",)
    error: Exception | None = None
    running = 0

    async def prepare_judge(self) -> None:
        """Does nothing."""

    @asynccontextmanager
    async def open_judge(self, without: Collection[str] = ()) -> AsyncIterator[Judge]:
        if self.error is not None:
            raise self.error
        folder = FolderSandbox()
        await folder.exec("" if "/usr/bin/grep" in without else "touch tool")
        try:
            yield Judge(folder, [path for path in self.used if path not in without])
        finally:
            await folder.close()

    async def left_running(self) -> int:
        return self.running


class Runs:
    """A command that succeeds."""

    needs_workspace = True

    def __init__(self, command: str) -> None:
        self.command = command

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        code = (await sandbox.exec(self.command)).exit_code
        if code == 3:
            raise NoVerdictError("none")
        return Score(criterion="runs", passed=code == 0, value=float(code == 0), detail="it ran")


class Itself(Runs):
    opens_judge = True


async def graded(own: Opens, *criteria: Any, keep: bool = False, ended: int = 0) -> Any:
    await own.exec("touch own")

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Sandbox]:
        sandbox = FolderSandbox()
        yield sandbox
        await sandbox.close()

    task = replace(builders.task(), keep_processes=keep)
    step = PreparedTask(
        task=task, criteria=tuple((CriterionSpec(type="runs", weight=2.0), c) for c in criteria)
    )
    try:
        places = Places(own, True, fresh, ended)
        return await grade(
            step, builders.trajectory(), places, Supervisor(), 20.0, Damage(began=True)
        )
    finally:
        await own.close()


async def test_criteria_share_a_judge_and_none_runs_where_the_agent_was() -> None:
    made, seen, own = await graded(
        Opens(), Runs("test ! -e own && touch made"), Runs("test -e made"), Runs("test -e own")
    )
    assert [each.value for each in (made, seen, own)] == [1.0, 1.0, 0.0]
    assert made.weight == 2.0
    assert "files of the agent that were used: /usr/bin/grep" in made.detail
    assert made.contested is None


async def test_a_pass_that_needs_the_agents_tool_is_contested_alone() -> None:
    with_tool, without = await graded(Opens(), Runs("test -e tool"), Runs("true"))
    assert (with_tool.value, with_tool.contested) == (1.0, 0.0)
    assert (without.value, without.contested) == (1.0, None)


async def test_a_criterion_that_opens_judges_itself_is_given_the_agents_sandbox() -> None:
    (score,) = await graded(Opens(), Itself("test -e own"))
    assert score.value == 1.0


async def test_a_fresh_sandbox_that_does_not_start_with_the_agents_files_is_its_failure() -> None:
    own = Opens()
    own.error = SandboxDamagedError("it does not start")
    (score,) = await graded(own, Runs("true"))
    assert score.value == 0.0
    assert score.detail == "the agent damaged the sandbox: it does not start"
    own = Opens()
    own.error = SandboxError("the engine is gone")
    with pytest.raises(SandboxError, match="engine is gone"):
        await graded(own, Runs("true"))


async def test_what_passes_only_beside_processes_is_contested_unless_the_task_keeps_them() -> None:
    for keep, contested in ((False, 0.0), (True, None)):
        own = Opens()
        own.running = 2
        (score,) = await graded(own, Runs("test -e own"), keep=keep)
        assert (score.value, score.contested) == (1.0, contested)
        assert "beside the agent's 2 running processes" in score.detail


async def test_no_verdict_without_the_agents_tool_blames_nobody() -> None:
    damaged, plain = await graded(Opens(), Runs("test -e tool || exit 3"), Runs("true"))
    assert (damaged.value, damaged.contested) == (1.0, 0.0)
    assert plain.value == 1.0


async def test_ended_processes_are_said() -> None:
    (score,) = await graded(Opens(), Runs("true"), ended=3)
    assert score.detail.startswith(
        "it ran\n3 processes of the agent were ended before the check\n[files of the agent"
    )
