"""Contract kit for grading criteria.

Every test opens its own sandbox, brings it into a state that should pass or fail with the author's
`make_it_pass` and `make_it_fail`, and checks the score.
"""

import asyncio
import math
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.errors import GradingError, SandboxError
from ale.protocols import Criterion, Sandbox
from ale.testing import builders
from ale.testing._marks import async_tests
from ale.testing._wrapper import Wrapper
from ale.testing.fakes import FolderBackend
from ale.types import ExecResult, SandboxSpec, Score, Task, Trajectory

_PROGRAMS = (
    *("awk", "basename", "bash", "cat", "chmod", "cmp", "cut", "dash", "diff", "dirname", "env"),
    *("false", "find", "grep", "head", "id", "ls", "mkdir", "mktemp", "mv", "node", "printf"),
    *("pwd", "pytest", "python", "python3", "readlink", "realpath", "rm", "sed", "sh", "sort"),
    *("stat", "tail", "tar", "test", "timeout", "touch", "tr", "true", "wc", "which", "xargs", "["),
)
_PLANTED = """#!/bin/sh
echo ok passed PASSED 'all tests passed' '1 passed in 0.01s'
exit 0
"""
_SNEAKY = """import os, sys
sys.stdout.write("ok\\n1 passed in 0.01s\\n")
sys.stdout.flush()
os._exit(0)
"""
_MODULES = ("conftest", "sitecustomize", "usercustomize", "unittest", "pytest", "json", "re")


class TamperedSandbox(Wrapper):
    """A sandbox in which an agent has planted programs, modules and shell profiles.

    Commands that run in its plain environment find the agent's programs first.
    """

    async def plant(self) -> None:
        """Put everything into the workspace."""
        for program in _PROGRAMS:
            await self.inner.write(f"bin/{program}", _PLANTED.encode(), mode=0o755)
        for module in _MODULES:
            await self.inner.write(f"{module}.py", _SNEAKY.encode())
        for profile in (".profile", ".bashrc", ".bash_profile"):
            await self.inner.write(profile, b"exit 0\n")
        await self.inner.write("pytest.ini", b"[pytest]\naddopts = --collect-only\n")

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> ExecResult:
        """Like the sandbox's own, but with the agent's PATH, PYTHONPATH and profile."""
        here = self.inner.workdir
        planted = {
            "PATH": f"{here}/bin:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": here,
            "PYTHONSTARTUP": f"{here}/sitecustomize.py",
            "HOME": here,
            "ENV": f"{here}/.profile",
            "BASH_ENV": f"{here}/.profile",
        }
        own = {**planted, **(env or {})}
        result: ExecResult = await self.inner.exec(command, env=own, **arguments)
        return result


@async_tests
class CriterionContract:
    """The contract of every criterion.

    Override `criterion`, `make_it_pass` and `make_it_fail`; also `task`, `trajectory` and `sandbox`
    if the criterion uses them or needs another kind of sandbox.
    """

    @pytest.fixture
    def criterion(self) -> Criterion:
        """The criterion under test."""
        raise NotImplementedError("override the fixture 'criterion'")

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        """Do what a successful agent would do."""
        raise NotImplementedError("override 'make_it_pass'")

    async def make_it_fail(self, sandbox: Sandbox) -> None:
        """Do what a bad agent would do. Default: nothing at all."""

    @pytest.fixture
    def task(self) -> Task:
        """The task that is graded."""
        return builders.task()

    @pytest.fixture
    def trajectory(self) -> Trajectory:
        """The agent's work."""
        return builders.trajectory(builders.turn("Done."))

    @pytest_asyncio.fixture
    async def sandbox(self) -> AsyncIterator[Sandbox]:
        """A fresh sandbox."""
        async with FolderBackend().open(SandboxSpec()) as sandbox:
            yield sandbox

    @pytest_asyncio.fixture
    async def other_sandbox(self) -> AsyncIterator[Sandbox]:
        """Another fresh sandbox."""
        async with FolderBackend().open(SandboxSpec()) as sandbox:
            yield sandbox

    async def test_it_passes_what_should_pass(
        self, criterion: Criterion, task: Task, trajectory: Trajectory, sandbox: Sandbox
    ) -> None:
        await self.make_it_pass(sandbox)
        score = await criterion.grade(task, trajectory, sandbox)
        assert_score(score)
        assert score.passed, f"should pass: {score.detail}"

    async def test_it_fails_what_should_fail_and_says_why(
        self, criterion: Criterion, task: Task, trajectory: Trajectory, sandbox: Sandbox
    ) -> None:
        await self.make_it_fail(sandbox)
        score = await criterion.grade(task, trajectory, sandbox)
        assert_score(score)
        assert not score.passed, f"should fail: {score.detail}"
        assert score.detail.strip(), "a failing score needs a detail"

    async def test_a_sandbox_that_is_gone_is_an_error_and_not_a_score(
        self, criterion: Criterion, task: Task, trajectory: Trajectory, sandbox: Sandbox
    ) -> None:
        await self.make_it_pass(sandbox)
        await sandbox.close()
        try:
            score = await criterion.grade(task, trajectory, sandbox)
        except (SandboxError, GradingError):
            return
        raise AssertionError(f"infrastructure failed and it was scored: {score}")

    async def test_grading_twice_gives_the_same_verdict(
        self,
        criterion: Criterion,
        task: Task,
        trajectory: Trajectory,
        sandbox: Sandbox,
        other_sandbox: Sandbox,
    ) -> None:
        await self.make_it_pass(sandbox)
        await self.make_it_fail(other_sandbox)
        for place in (sandbox, other_sandbox):
            first = await criterion.grade(task, trajectory, place)
            second = await criterion.grade(task, trajectory, place)
            assert (first.passed, first.value) == (second.passed, second.value), (
                f"first {first}, then {second}"
            )

    async def test_two_gradings_at_once_do_not_mix(
        self,
        criterion: Criterion,
        task: Task,
        trajectory: Trajectory,
        sandbox: Sandbox,
        other_sandbox: Sandbox,
    ) -> None:
        await self.make_it_pass(sandbox)
        await self.make_it_fail(other_sandbox)
        good, bad = await asyncio.gather(
            criterion.grade(task, trajectory, sandbox),
            criterion.grade(task, trajectory, other_sandbox),
        )
        assert good.passed, f"should pass next to another: {good.detail}"
        assert not bad.passed, f"should fail next to another: {bad.detail}"

    async def test_grading_leaves_the_workspace_as_it_was(
        self,
        criterion: Criterion,
        task: Task,
        trajectory: Trajectory,
        sandbox: Sandbox,
        tmp_path: Path,
    ) -> None:
        await self.make_it_pass(sandbox)
        before = await workspace(sandbox, tmp_path / "before")
        await criterion.grade(task, trajectory, sandbox)
        after = await workspace(sandbox, tmp_path / "after")
        assert after == before, f"changed: {sorted(set(after.items()) ^ set(before.items()))}"

    async def test_what_the_agent_planted_does_not_turn_a_failure_into_a_pass(
        self, criterion: Criterion, task: Task, trajectory: Trajectory, sandbox: Sandbox
    ) -> None:
        await self.make_it_fail(sandbox)
        hostile = TamperedSandbox(sandbox)
        await hostile.plant()
        score = await criterion.grade(task, trajectory, hostile)
        assert_score(score)
        assert not score.passed, f"fooled by what lay in the workspace: {score.detail}"

    async def test_what_the_agent_planted_does_not_turn_a_pass_into_a_failure(
        self, criterion: Criterion, task: Task, trajectory: Trajectory, sandbox: Sandbox
    ) -> None:
        await self.make_it_pass(sandbox)
        hostile = TamperedSandbox(sandbox)
        await hostile.plant()
        score = await criterion.grade(task, trajectory, hostile)
        assert score.passed, f"should pass in spite of what lies in the workspace: {score.detail}"


def assert_score(score: Score) -> None:
    """A score that a run can use: finite, 1 exactly when it passed, in [0, 1] or `unbounded`."""
    assert type(score) is Score, f"expected a Score, found {score!r}"
    assert score.criterion, "the score does not name its criterion"
    assert type(score.passed) is bool, f"passed is {score.passed!r}"
    assert type(score.value) in (int, float), f"the value is {score.value!r}"
    assert math.isfinite(score.value), f"the value is {score.value}"
    bounded = 0 <= score.value <= 1
    assert bounded or score.unbounded, f"the value {score.value} is outside [0, 1]"
    assert (score.value == 1) == score.passed, f"passed is {score.passed}, value {score.value}"
    assert score.weight == 1.0, "the weight is set by the run"


async def workspace(sandbox: Sandbox, target: Path) -> Mapping[str, tuple[int, bytes]]:
    """Every path in the workspace with mode and content (a link's target; nothing for a folder)."""
    await sandbox.download(sandbox.workdir, target)
    return await asyncio.to_thread(_files, target)


def _files(target: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in sorted(target.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            data = str(path.readlink()).encode()
        else:
            data = path.read_bytes() if stat.S_ISREG(mode) else b""
        found[path.relative_to(target).as_posix()] = (mode, data)
    return found
