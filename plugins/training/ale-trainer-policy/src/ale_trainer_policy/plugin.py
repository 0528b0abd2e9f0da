"""Registers the trainers ``policy`` and ``sft``, and two commands; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, Ranks, hookimpl
from ale_trainer_policy.packages import probe

if TYPE_CHECKING:
    import click

    from ale.protocols import Trainer
    from ale_trainer_policy.options import LearnOptions


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
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Register ``ale model`` and ``ale plan``."""
    from ale_trainer_policy.commands import model, plan

    return {"Data and training": [model], "Run": [plan]}
