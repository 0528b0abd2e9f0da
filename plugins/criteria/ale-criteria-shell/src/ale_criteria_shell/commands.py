"""Criteria on a command: its exit code, its output."""

from collections.abc import Collection
from typing import ClassVar

from attrs import frozen

from ale.protocols import Sandbox
from ale.types import ExecResult, Score, Task, Trajectory
from ale_criteria_shell import shell
from ale_criteria_shell.matching import SearchTooLongError, matches
from ale_criteria_shell.options import (
    CommandExitCodeOptions,
    CommandOptions,
    RegexInStdoutOptions,
)
from ale_grading.signed_tests import CLEAN, Look, excerpt, inverts, lacking_of_line


def _score(
    criterion: str, passed: bool, detail: str, outcome: ExecResult, *, late: bool = False
) -> Score:
    return Score(
        criterion=criterion,
        passed=passed,
        value=float(passed),
        detail=detail,
        timed_out=outcome.timed_out or late,
    )


def _evidence(outcome: ExecResult) -> str:
    text = f"stdout: {excerpt(outcome.stdout)}\nstderr: {excerpt(outcome.stderr)}"
    if outcome.exit_code == 127:
        text += f"\nnote: programs are looked for in {CLEAN['PATH']}; option env.PATH changes that"
    return text


async def _lacking(
    options: CommandOptions, task: Task, sandbox: Sandbox, untouched: bool
) -> Collection[str]:
    look = Look(task=task, sandbox=sandbox, untouched=untouched, env=options.env)
    return await lacking_of_line(options.command, look)


@frozen
class CommandExitCode:
    """Passes when a command ends with the expected exit code."""

    options: CommandExitCodeOptions
    needs_workspace: ClassVar[bool] = True

    @property
    def passes_without_tools(self) -> bool:
        """Whether the line may succeed because a program is missing. See `NeedsTools`."""
        return inverts(self.options.command)

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """Run the command once. Raises as `Criterion.grade`."""
        options = self.options
        outcome, error = await shell.run(sandbox, task, options)
        passed = error is None and outcome.exit_code == options.exit_code
        detail = f"{options.command!r}: {error or f'exit code {outcome.exit_code}'}"
        if not passed:
            detail += f", expected exit code {options.exit_code}\n{_evidence(outcome)}"
        return _score("command_exit_code", passed, detail, outcome)

    async def lacking(self, task: Task, sandbox: Sandbox, *, untouched: bool) -> Collection[str]:
        """The programs of the command that are missing. Raises as `NeedsTools.lacking`."""
        return await _lacking(self.options, task, sandbox, untouched)


@frozen
class RegexInStdout:
    """Passes when a command's standard output has a match of a regular expression."""

    options: RegexInStdoutOptions
    needs_workspace: ClassVar[bool] = True

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """Run the command once and search its output. Raises as `Criterion.grade`."""
        options = self.options
        outcome, error = await shell.run(sandbox, task, options)
        late = False
        try:
            error = error or await self._mismatch(outcome)
        except SearchTooLongError as too_long:
            error, late = str(too_long), True
        detail = f"{options.command!r} printed {options.pattern!r}"
        if error is not None:
            detail = f"{options.command!r}: {error}\n{_evidence(outcome)}"
        return _score("regex_in_stdout", error is None, detail, outcome, late=late)

    async def lacking(self, task: Task, sandbox: Sandbox, *, untouched: bool) -> Collection[str]:
        """The programs of the command that are missing. Raises as `NeedsTools.lacking`."""
        return await _lacking(self.options, task, sandbox, untouched)

    async def _mismatch(self, outcome: ExecResult) -> str | None:
        wanted = self.options.exit_code
        if wanted is not None and outcome.exit_code != wanted:
            return f"exit code {outcome.exit_code}, expected {wanted}"
        if await matches(self.options.pattern, outcome.stdout.decode("utf-8", "replace")):
            return None
        cut = " (of long output, head and tail were searched)" if outcome.truncated else ""
        return f"no match of {self.options.pattern!r} in stdout{cut}, exit code {outcome.exit_code}"
