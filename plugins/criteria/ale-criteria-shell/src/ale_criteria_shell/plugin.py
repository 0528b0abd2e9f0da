"""Registers four criteria. The graders are imported when one is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Criterion


@hookimpl
def ale_criteria() -> Sequence[Component[Any, Criterion]]:
    """The four criteria of the benchmark format."""
    return [
        Component(
            "command_exit_code",
            "ale_criteria_shell.options:CommandExitCodeOptions",
            "ale_criteria_shell.commands:CommandExitCode",
            summary="A command ends with the expected exit code.",
        ),
        Component(
            "file_contains",
            "ale_criteria_shell.options:FileContainsOptions",
            "ale_criteria_shell.files:FileContains",
            summary="A file contains a text or a match of a regular expression.",
        ),
        Component(
            "regex_in_stdout",
            "ale_criteria_shell.options:RegexInStdoutOptions",
            "ale_criteria_shell.commands:RegexInStdout",
            summary="What a command prints matches a regular expression.",
        ),
        Component(
            "unit_tests_pass",
            "ale_criteria_shell.options:UnitTestsPassOptions",
            "ale_criteria_shell.unit_tests:UnitTestsPass",
            summary="Hidden Python tests pass against what the agent wrote.",
        ),
    ]
