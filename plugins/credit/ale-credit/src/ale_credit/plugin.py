"""Registers the credit schemes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import CreditScheme


@hookimpl
def ale_credit_schemes() -> Sequence[Component[Any, CreditScheme]]:
    """Register the credit schemes."""
    return [
        Component(
            "ipa",
            "ale_credit.options:IpaOptions",
            "ale_credit.chunk_schemes:Ipa",
            summary="Discounted return per chunk (the IPA paper's).",
        ),
        Component(
            "ipa-lite",
            "ale_credit.options:IpaLiteOptions",
            "ale_credit.chunk_schemes:IpaLite",
            summary="ALE-lite's approximation of IPA: the score, weighted by position.",
        ),
        Component(
            "reinforce",
            "ale_credit.options:ReinforceOptions",
            "ale_credit.chunk_schemes:Reinforce",
            summary="The return, with or without a baseline.",
        ),
        Component(
            "grpo",
            "ale_credit.options:GrpoOptions",
            "ale_credit.group_schemes:Grpo",
            summary="Reward normalised within its group.",
        ),
        Component(
            "dr-grpo",
            None,
            "ale_credit.group_schemes:DrGrpo",
            summary="Reward minus the group's mean.",
        ),
        Component(
            "rloo",
            None,
            "ale_credit.group_schemes:Rloo",
            summary="Reward minus the mean of the other rollouts.",
        ),
        Component(
            "weight-one",
            None,
            "ale_credit.chunk_schemes:WeightOne",
            summary="The weight 1 for every chunk, whatever its reward: a control.",
        ),
        Component(
            "none",
            None,
            "ale_credit.chunk_schemes:NoCredit",
            summary="No credit: only the objective's KL and entropy terms learn.",
        ),
        Component(
            "filtered-imitation",
            "ale_credit.options:FilteredImitationOptions",
            "ale_credit.chunk_schemes:FilteredImitation",
            summary="The weight 1 for every chunk of a success, else 0: a control.",
        ),
        Component(
            "oracle",
            "ale_credit.options:OracleOptions",
            "ale_credit.measured:Oracle",
            summary="The measured worth of each chunk of a stored episode: an upper bound.",
        ),
        Component(
            "gigpo",
            "ale_credit.options:GigpoOptions",
            "ale_credit.state_schemes:Gigpo",
            summary="GRPO, plus each chunk beside those that were taken in the same state.",
        ),
        Component(
            "tree",
            None,
            "ale_credit.state_schemes:Tree",
            summary="Change of the mean reward of the group's episodes that began alike.",
        ),
        Component(
            "repair",
            "ale_credit.options:RepairOptions",
            "ale_credit.repair:Repair",
            summary="Return per attempt, with a bonus for a success after failed ones.",
        ),
        Component(
            "gae",
            "ale_credit.options:GaeOptions",
            "ale_credit.gae:GaeScheme",
            summary="Generalised advantage estimation with the trainer's critic (PPO's).",
        ),
        Component(
            "step-scores",
            "ale_credit.options:StepScoresOptions",
            "ale_credit.process:StepScores",
            summary="Process rewards from a scorer of steps, beside the outcome.",
        ),
    ]
