"""Registers the credit schemes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import CreditScheme
    from ale_credit.options import (
        GaeOptions,
        GrpoOptions,
        IpaLiteOptions,
        IpaOptions,
        ReinforceOptions,
        RepairOptions,
    )


def _ipa(options: IpaOptions, context: BuildContext) -> CreditScheme:
    from ale_credit.chunk_schemes import Ipa

    return Ipa(options)


def _ipa_lite(options: IpaLiteOptions, context: BuildContext) -> CreditScheme:
    from ale_credit.chunk_schemes import IpaLite

    return IpaLite(options)


def _reinforce(options: ReinforceOptions, context: BuildContext) -> CreditScheme:
    from ale_credit.chunk_schemes import Reinforce

    return Reinforce(options)


def _grpo(options: GrpoOptions, context: BuildContext) -> CreditScheme:
    from ale_credit.group_schemes import Grpo

    return Grpo(options)


def _dr_grpo(options: None, context: BuildContext) -> CreditScheme:
    from ale_credit.group_schemes import DrGrpo

    return DrGrpo()


def _rloo(options: None, context: BuildContext) -> CreditScheme:
    from ale_credit.group_schemes import Rloo

    return Rloo()


def _repair(options: RepairOptions, context: BuildContext) -> CreditScheme:
    from ale_credit.repair import Repair

    return Repair(options)


def _gae(options: GaeOptions, context: BuildContext) -> CreditScheme:
    from ale_credit.gae import GaeScheme

    return GaeScheme(options)


def _weight_one(options: None, context: BuildContext) -> CreditScheme:
    from ale_credit.chunk_schemes import WeightOne

    return WeightOne()


@hookimpl
def ale_credit_schemes() -> Sequence[Component[Any, CreditScheme]]:
    """Register the credit schemes."""
    return [
        Component(
            "ipa",
            "ale_credit.options:IpaOptions",
            _ipa,
            summary="Discounted return per chunk (the IPA paper's).",
        ),
        Component(
            "ipa-lite",
            "ale_credit.options:IpaLiteOptions",
            _ipa_lite,
            summary="ALE-lite's approximation of IPA: the score, weighted by position.",
        ),
        Component(
            "reinforce",
            "ale_credit.options:ReinforceOptions",
            _reinforce,
            summary="The return, with or without a baseline.",
        ),
        Component(
            "grpo",
            "ale_credit.options:GrpoOptions",
            _grpo,
            summary="Reward normalised within its group.",
        ),
        Component("dr-grpo", None, _dr_grpo, summary="Reward minus the group's mean."),
        Component("rloo", None, _rloo, summary="Reward minus the mean of the other rollouts."),
        Component(
            "weight-one",
            None,
            _weight_one,
            summary="The weight 1 for every chunk, whatever its reward: a control.",
        ),
        Component(
            "repair",
            "ale_credit.options:RepairOptions",
            _repair,
            summary="Return per attempt, with a bonus for a success after failed ones.",
        ),
        Component(
            "gae",
            "ale_credit.options:GaeOptions",
            _gae,
            summary="Generalised advantage estimation with the trainer's critic (PPO's).",
        ),
    ]
