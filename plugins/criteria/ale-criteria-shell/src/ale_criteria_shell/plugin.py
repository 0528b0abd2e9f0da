"""Registers four criteria. The graders are imported when one is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Criterion
    from ale_criteria_shell.options import (
        CommandExitCodeOptions,
        FileContainsOptions,
        RegexInStdoutOptions,
        UnitTestsPassOptions,
    )


def _command_exit_code(options: CommandExitCodeOptions, context: BuildContext) -> Criterion:
    from ale_criteria_shell.commands import CommandExitCode

    return CommandExitCode(options)


def _regex_in_stdout(options: RegexInStdoutOptions, context: BuildContext) -> Criterion:
    from ale_criteria_shell.commands import RegexInStdout

    return RegexInStdout(options)


def _file_contains(options: FileContainsOptions, context: BuildContext) -> Criterion:
    from ale_criteria_shell.files import FileContains

    return FileContains(options)


def _unit_tests_pass(options: UnitTestsPassOptions, context: BuildContext) -> Criterion:
    from ale_criteria_shell.unit_tests import UnitTestsPass

    return UnitTestsPass(options)


@hookimpl
def ale_criteria() -> Sequence[Component[Any, Criterion]]:
    """The four criteria of the benchmark format."""
    return [
        Component(
            "command_exit_code",
            "ale_criteria_shell.options:CommandExitCodeOptions",
            _command_exit_code,
            summary="A command ends with the expected exit code.",
        ),
        Component(
            "file_contains",
            "ale_criteria_shell.options:FileContainsOptions",
            _file_contains,
            summary="A file contains a text or a match of a regular expression.",
        ),
        Component(
            "regex_in_stdout",
            "ale_criteria_shell.options:RegexInStdoutOptions",
            _regex_in_stdout,
            summary="What a command prints matches a regular expression.",
        ),
        Component(
            "unit_tests_pass",
            "ale_criteria_shell.options:UnitTestsPassOptions",
            _unit_tests_pass,
            summary="Hidden Python tests pass against what the agent wrote.",
        ),
    ]
