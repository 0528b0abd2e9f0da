"""Registers four criteria. The graders are imported when one is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Criterion


@hookimpl
def ale_criteria() -> Sequence[Component[Any, Criterion]]:
    """The four criteria of short answers."""
    return [
        Component(
            "numeric_answer",
            "ale_criteria_answers.options:NumericAnswerOptions",
            "ale_criteria_answers.criteria:NumericAnswer",
            summary="The number that the agent ends up with is the right one.",
        ),
        Component(
            "math_equal",
            "ale_criteria_answers.options:MathEqualOptions",
            "ale_criteria_answers.criteria:MathEqual",
            summary="The formula that the agent ends up with equals the right one.",
        ),
        Component(
            "exact_match",
            "ale_criteria_answers.options:ExactMatchOptions",
            "ale_criteria_answers.criteria:ExactMatch",
            summary="The text that the agent ends up with is the right one.",
        ),
        Component(
            "choice",
            "ale_criteria_answers.options:ChoiceOptions",
            "ale_criteria_answers.criteria:Choice",
            summary="The letter that the agent chooses is the right one.",
        ),
    ]
