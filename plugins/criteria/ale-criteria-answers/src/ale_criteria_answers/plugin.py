"""Registers four criteria. The graders are imported when one is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Criterion
    from ale_criteria_answers.options import (
        ChoiceOptions,
        ExactMatchOptions,
        MathEqualOptions,
        NumericAnswerOptions,
    )


def _numeric_answer(options: NumericAnswerOptions, context: BuildContext) -> Criterion:
    from ale_criteria_answers.criteria import NumericAnswer

    return NumericAnswer(options)


def _math_equal(options: MathEqualOptions, context: BuildContext) -> Criterion:
    from ale_criteria_answers.criteria import MathEqual

    return MathEqual(options)


def _exact_match(options: ExactMatchOptions, context: BuildContext) -> Criterion:
    from ale_criteria_answers.criteria import ExactMatch

    return ExactMatch(options)


def _choice(options: ChoiceOptions, context: BuildContext) -> Criterion:
    from ale_criteria_answers.criteria import Choice

    return Choice(options)


@hookimpl
def ale_criteria() -> Sequence[Component[Any, Criterion]]:
    """The four criteria of short answers."""
    return [
        Component(
            "numeric_answer",
            "ale_criteria_answers.options:NumericAnswerOptions",
            _numeric_answer,
            summary="The number that the agent ends up with is the right one.",
        ),
        Component(
            "math_equal",
            "ale_criteria_answers.options:MathEqualOptions",
            _math_equal,
            summary="The formula that the agent ends up with equals the right one.",
        ),
        Component(
            "exact_match",
            "ale_criteria_answers.options:ExactMatchOptions",
            _exact_match,
            summary="The text that the agent ends up with is the right one.",
        ),
        Component(
            "choice",
            "ale_criteria_answers.options:ChoiceOptions",
            _choice,
            summary="The letter that the agent chooses is the right one.",
        ),
    ]
