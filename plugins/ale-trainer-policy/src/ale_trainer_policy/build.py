"""Puts the trainers together from their options."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from ale.plugin import BuildContext
from ale_trainer_policy.bad_batches import BadBatches
from ale_trainer_policy.lessons import Imitation, Reinforcement
from ale_trainer_policy.old_policy import OldPolicy
from ale_trainer_policy.options import (
    PRESETS,
    LearnOptions,
    PolicyOptions,
    SftOptions,
    resolve_objective,
)
from ale_trainer_policy.trainer import PolicyTrainer


def policy_trainer(options: PolicyOptions, context: BuildContext) -> PolicyTrainer:
    """Reinforcement on credited episodes."""
    parts = resolve_objective(options.objective)
    return PolicyTrainer(
        "policy",
        options,
        lesson=Reinforcement(parts=parts, imitation=options.imitation),
        parts=parts,
        old_policy=OldPolicy(options.old_policy, options.keep_versions),
        bad_batches=BadBatches(_folder(options, context)),
        seed=context.seed,
    )


def sft_trainer(options: SftOptions, context: BuildContext) -> PolicyTrainer:
    """Imitation of whole episodes; no token has a ratio."""
    return PolicyTrainer(
        "sft",
        options,
        lesson=Imitation(options=options),
        parts=PRESETS["reinforce"],
        old_policy=OldPolicy("rollout_engine", 1),
        bad_batches=BadBatches(_folder(options, context)),
        seed=context.seed,
    )


def _folder(options: LearnOptions, context: BuildContext) -> Callable[[], Path]:
    def found() -> Path:
        if options.bad_batches is not None:
            return options.bad_batches
        if context.run_directory is not None:
            return context.run_directory / "bad_batches"
        return Path(tempfile.mkdtemp(prefix="ale-bad-batches-"))

    return found
