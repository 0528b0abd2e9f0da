"""Registers ``python_tests``. The grader is imported when it is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Criterion


@hookimpl
def ale_criteria() -> Sequence[Component[Any, Criterion]]:
    """Register ``python_tests``."""
    summary = "Hidden Python asserts hold for the code in the agent's answer."
    return [
        Component(
            "python_tests",
            "ale_criteria_python.options:PythonTestsOptions",
            "ale_criteria_python.python_tests:PythonTests",
            summary=summary,
        )
    ]
