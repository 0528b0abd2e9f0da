"""Registers the scorers of steps, and a criterion that uses one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Criterion, StepScorer


@hookimpl
def ale_step_scorers() -> Sequence[Component[Any, StepScorer]]:
    """Register the scorers."""
    return [
        Component(
            "rules",
            "ale_scorers.options:RulesOptions",
            "ale_scorers.scorers:Rules",
            summary="Length, repeated calls, failed calls and the size of diffs.",
        ),
        Component(
            "judge",
            "ale_scorers.options:JudgeOptions",
            "ale_scorers.judge:judge",
            summary="A model that is asked several times what each chunk is worth.",
        ),
        Component(
            "claims",
            "ale_scorers.options:ClaimsOptions",
            "ale_scorers.claims:Claims",
            summary="The share of the final answer's claims that the observations support.",
        ),
        Component(
            "combined",
            "ale_scorers.options:CombinedOptions",
            "ale_scorers.scorers:Combined",
            summary="The weighted mean of other scorers.",
        ),
        Component(
            "hackable",
            "ale_scorers.options:HackableOptions",
            "ale_scorers.scorers:Hackable",
            summary="Rewards length and keywords: for experiments on reward hacking alone.",
        ),
    ]


@hookimpl
def ale_criteria() -> Sequence[Component[Any, Criterion]]:
    """Register the criterion."""
    return [
        Component(
            "step_scores",
            "ale_scorers.options:StepScoresOptions",
            "ale_scorers.criterion:StepScores",
            summary="The scores of the turns, by any step scorer.",
        )
    ]
