"""Registers the trainers ``policy`` and ``sft``, objectives and two commands; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, Ranks, hookimpl
from ale_trainer_policy.packages import probe

if TYPE_CHECKING:
    import click

    from ale.protocols import Objective, Trainer
    from ale_trainer_policy.options import LearnOptions

OBJECTIVES = {
    "ipa": "IPA: the ratio of a chunk, clamped for failures only, and a mask per chunk.",
    "ipa-baseline": "IPA's baseline: the ratio of a trajectory, and a mask per token.",
    "topr": "TOPR: the probability of a trajectory, clamped for failures only.",
    "token-tis": "Truncated importance sampling, token by token.",
    "grpo": "GRPO: PPO's clip per token, the mean over trajectories, a KL to the start.",
    "dr-grpo": "Dr. GRPO: PPO's clip per token, divided by a constant length.",
    "gspo": "GSPO: PPO's clip of the ratio of a trajectory.",
    "cispo": "CISPO: the ratio of a token as a bounded weight.",
    "dapo": "DAPO: PPO's clip, higher upwards, over tokens of groups with a signal.",
    "ppo": "PPO's clip per token, for a critic.",
    "reinforce": "REINFORCE: no ratio and no mask.",
}


def _ranks(options: LearnOptions) -> Ranks:
    return Ranks(count=options.processes, module="ale_trainer_policy.ranks")


@hookimpl
def ale_trainers() -> Sequence[Component[Any, Trainer]]:
    """Register ``policy`` and ``sft``."""
    return [
        Component(
            "policy",
            "ale_trainer_policy.options:PolicyOptions",
            "ale_trainer_policy.build:policy_trainer",
            summary="Reinforcement of the model that samples: IPA, GRPO, GSPO, CISPO and more.",
            probe=probe,
            needs=("llm",),
            ranks=_ranks,
        ),
        Component(
            "sft",
            "ale_trainer_policy.options:SftOptions",
            "ale_trainer_policy.build:sft_trainer",
            summary="Imitation of successful or given episodes.",
            probe=probe,
            needs=("llm",),
            ranks=_ranks,
        ),
    ]


@hookimpl
def ale_objectives() -> Sequence[Component[Any, Objective]]:
    """Register the presets."""
    return [
        Component(
            name,
            f"ale_trainer_policy.presets:{name}",
            "ale_trainer_policy.options:resolve_objective",
            summary=summary,
            probe=probe,
        )
        for name, summary in OBJECTIVES.items()
    ]


@hookimpl
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Register ``ale model`` and ``ale plan``."""
    from ale_trainer_policy.commands import model, plan

    return {"Data and training": [model], "Run": [plan]}
