"""Criteria on a command: its exit code, its output."""

from collections.abc import Collection
from typing import ClassVar

from attrs import frozen

from ale.protocols import Sandbox
from ale.types import ExecResult, Score, Task, Trajectory, replace
from ale_criteria_shell import shell
from ale_criteria_shell.matching import SearchTooLongError, matches, search
from ale_criteria_shell.options import (
    CommandExitCodeOptions,
    CommandOptions,
    RegexInStdoutOptions,
)
from ale_grading.signed_tests import CLEAN, Look, excerpt, inverts, lacking_of_line

_NUMBERS = 10_000
_WORDS = ("yes", "no", "true", "false", "ok", "OK", "pass", "passed", "PASS", "success", "done")
_LOOK_S = 1.0


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
        late, found = False, list[str]()
        try:
            if error is None:
                text = outcome.stdout.decode("utf-8", "replace")
                found = await matches(options.pattern, text)
                error = self._mismatch(outcome, found)
        except SearchTooLongError as too_long:
            error, late = str(too_long), True
        detail = f"{options.command!r} printed {options.pattern!r}"
        if error is not None:
            detail = f"{options.command!r}: {error}\n{_evidence(outcome)}"
        score = _score("regex_in_stdout", error is None, detail, outcome, late=late)
        if error is not None or len(found) < 2:
            return score
        shown = ", ".join(excerpt(text, 40) for text in found)
        note = f"[contested: different matches ({shown}): whoever prints everything would pass]"
        return replace(score, detail=f"{detail}\n{note}", contested=0.0)

    async def lacking(self, task: Task, sandbox: Sandbox, *, untouched: bool) -> Collection[str]:
        """The programs of the command that are missing. Raises as `NeedsTools.lacking`."""
        return await _lacking(self.options, task, sandbox, untouched)

    def weakness(self, task: Task) -> str:
        """How a command that prints everything would pass. See `ale.protocols.KnowsWeakness`."""
        numbers = "\n".join(map(str, range(_NUMBERS)))
        everything = "\n".join((numbers, *_WORDS, *task.goal.split(), task.goal))
        try:
            found = search(self.options.pattern, everything, _LOOK_S)
        except TimeoutError:
            return ""
        if len(found) != 1:  # no match; of several the score is contested
            return ""
        return (
            f"{found[0]!r} among all else passes {self.options.pattern!r}, so whoever prints every "
            r"number and word does; \A and \Z ask for the whole output"
        )

    def _mismatch(self, outcome: ExecResult, found: Collection[str]) -> str | None:
        wanted = self.options.exit_code
        if wanted is not None and outcome.exit_code != wanted:
            return f"exit code {outcome.exit_code}, expected {wanted}"
        if found:
            return None
        cut = " (of long output, head and tail were searched)" if outcome.truncated else ""
        return f"no match of {self.options.pattern!r} in stdout{cut}, exit code {outcome.exit_code}"
