"""Builds the trainers from their options."""

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ale.errors import InputError, Problem
from ale.plugin import BuildContext
from ale_trainer_policy.bad_batches import BadBatches
from ale_trainer_policy.old_policy import OldPolicy
from ale_trainer_policy.options import (
    PRESETS,
    LearnOptions,
    PolicyOptions,
    SftOptions,
    resolve_objective,
)
from ale_trainer_policy.ratios import RatioFiles
from ale_trainer_policy.targets import Imitation, Reinforcement
from ale_trainer_policy.trainer import PolicyTrainer

_LOG = logging.getLogger(__name__)


def policy_trainer(options: PolicyOptions, context: BuildContext) -> PolicyTrainer:
    """Reinforcement on credited episodes."""
    parts = resolve_objective(options.objective)
    _refuse(
        [
            *_shared_weights(options, context),
            *_uncorrected_staleness(options, context),
            *_too_few_versions(options, context),
        ]
    )
    if context.staleness > 0 and options.old_policy == "recompute":
        _LOG.warning("warning: %s", _no_correction(context))
    return PolicyTrainer(
        "policy",
        options,
        target=Reinforcement(parts=parts, imitation=options.imitation),
        parts=parts,
        old_policy=OldPolicy(options.old_policy or "recompute", options.keep_versions),
        bad_batches=BadBatches(_folder(options, context)),
        ratios=_ratios(options, context),
        seed=context.seed,
    )


def sft_trainer(options: SftOptions, context: BuildContext) -> PolicyTrainer:
    """Imitation of whole episodes; no token has a ratio."""
    _refuse(_shared_weights(options, context))
    return PolicyTrainer(
        "sft",
        options,
        target=Imitation(options=options),
        parts=PRESETS["reinforce"],
        old_policy=OldPolicy("rollout_engine", 1),
        bad_batches=BadBatches(_folder(options, context)),
        seed=context.seed,
    )


def _refuse(problems: Iterable[Problem]) -> None:
    """Raises `InputError` if there are any."""
    if found := list(problems):
        raise InputError(found)


def _shared_weights(options: LearnOptions, context: BuildContext) -> Iterator[Problem]:
    """With staleness, episodes are sampled while weights are trained: they can't be shared."""
    if context.staleness > 0 and options.sync == "same":
        message = f"run.staleness is {context.staleness}: the model samples while it is trained"
        hint = "trainer.sync: copy, which hands weights over after each step"
        yield Problem(message=message, path="trainer.sync", hint=hint)


def _no_correction(context: BuildContext) -> str:
    return (
        f"run.staleness is {context.staleness}, and old_policy: recompute takes the weights before "
        "the step for pi_old, whichever weights sampled the tokens: no objective's importance "
        "ratio corrects for staleness"
    )


def _uncorrected_staleness(options: PolicyOptions, context: BuildContext) -> Iterator[Problem]:
    """With `recompute` pi_theta / pi_old is exactly 1 at the first update, however stale."""
    if context.staleness > 0 and options.old_policy is None:
        yield Problem(
            message=_no_correction(context),
            path="trainer.old_policy",
            expected="rollout_version, with keep_versions at least "
            f"{context.staleness + 1}, or rollout_engine",
            hint="give old_policy: recompute explicitly to train without this correction",
        )


def _too_few_versions(options: PolicyOptions, context: BuildContext) -> Iterator[Problem]:
    """A token may be of the current version or of any of the `staleness` ones before it."""
    needed = context.staleness + 1
    if options.old_policy == "rollout_version" and options.keep_versions < needed:
        yield Problem(
            message=f"run.staleness is {context.staleness}: a step's tokens are of up to {needed} "
            f"versions, and {options.keep_versions} are stored for old_policy: rollout_version",
            path="trainer.keep_versions",
            expected=f"at least {needed}",
            hint="trainer.old_policy: rollout_engine stores no weights",
        )


def _ratios(options: PolicyOptions, context: BuildContext) -> RatioFiles | None:
    if not options.keep_ratios or context.run_directory is None:
        return None
    return RatioFiles(context.run_directory / "ratios")


def _folder(options: LearnOptions, context: BuildContext) -> Callable[[], Path]:
    def found() -> Path:
        if options.bad_batches is not None:
            return options.bad_batches
        if context.run_directory is not None:
            return context.run_directory / "bad_batches"
        return Path(tempfile.mkdtemp(prefix="ale-bad-batches-"))

    return found
