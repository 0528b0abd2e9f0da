"""Builds the trainers from their options."""

import logging
from collections.abc import Iterable, Iterator

from attrs import evolve

from ale.errors import InputError, Problem, nearest
from ale.plugin import BuildContext
from ale.protocols import Objective
from ale_trainer_policy.hints import Hints
from ale_trainer_policy.objective import Corrected
from ale_trainer_policy.old_policy import OldPolicy
from ale_trainer_policy.options import (
    PRESETS,
    CorrectionOptions,
    LearnOptions,
    ObjectiveParts,
    PolicyOptions,
    SftOptions,
    chosen_objective,
    resolve_correction,
)
from ale_trainer_policy.targets import Imitation, Reinforcement
from ale_trainer_policy.trainer import PolicyTrainer
from ale_training.normalise import NORMALISERS

_LOG = logging.getLogger(__name__)


def policy_trainer(options: PolicyOptions, context: BuildContext) -> PolicyTrainer:
    """Reinforcement on credited episodes."""
    correction = resolve_correction(options.correction)
    objective = chosen_objective(options.objective)
    _refuse(
        [
            *_unknown_normaliser(objective),
            *_shared_weights(options, context),
            *_uncorrected_staleness(options, context),
            *_corrected_twice(options, correction),
            *_too_few_versions(options, context),
        ]
    )
    if correction.method == "none" and _is_stale(options, context):
        _LOG.warning("warning: %s", _no_correction(context))
    if isinstance(objective, ObjectiveParts):
        if _lacks_ratio(objective) and options.epochs * options.minibatches > 1:
            _LOG.warning(
                "warning: this objective has no importance ratio, and of a step's updates all but "
                "the first are of another policy than pi_old: objective.positive and negative "
                "choose one"
            )
        objective = evolve(objective, correction=correction)
    elif correction.method != "none":
        objective = Corrected(objective=objective, correction=correction)
    return PolicyTrainer(
        "policy",
        options,
        context,
        target=Reinforcement(objective=objective, imitation=options.imitation),
        objective=objective,
        old_policy=OldPolicy(options.old_policy or "recompute", options.keep_versions),
        critic=options.critic,
        keeps_ratios=options.keep_ratios,
        hints=_hints(objective),
    )


def _hints(objective: Objective) -> Hints | None:
    """Texts that the teacher of the KL term reads, if any; raises as `Hints`."""
    kl = objective.kl if isinstance(objective, ObjectiveParts) else None
    return None if kl is None or kl.hint is None else Hints(kl.hint)


def sft_trainer(options: SftOptions, context: BuildContext) -> PolicyTrainer:
    """Imitation of whole episodes; no token has a ratio."""
    _refuse(_shared_weights(options, context))
    return PolicyTrainer(
        "sft",
        options,
        context,
        target=Imitation(options=options),
        objective=PRESETS["reinforce"],
        old_policy=OldPolicy("rollout_engine", 1),
    )


def _lacks_ratio(parts: ObjectiveParts) -> bool:
    return parts.positive == parts.negative == "none"


def _unknown_normaliser(objective: Objective) -> Iterator[Problem]:
    if objective.normaliser not in NORMALISERS:
        yield Problem(
            message=f"the objective has the normaliser {objective.normaliser!r}",
            path="trainer.objective",
            expected=f"one of {', '.join(NORMALISERS)}",
            hint=nearest(str(objective.normaliser), NORMALISERS),
        )


def _refuse(problems: Iterable[Problem]) -> None:
    """Raise `InputError` if there are any problems."""
    if found := list(problems):
        raise InputError(found)


def _shared_weights(options: LearnOptions, context: BuildContext) -> Iterator[Problem]:
    """With staleness, sampling and training overlap, so they can't share one set of weights."""
    if context.staleness > 0 and options.sync == "same":
        message = f"run.staleness is {context.staleness}: the model samples while it is trained"
        hint = "trainer.sync: copy, which hands weights over after each step"
        yield Problem(message=message, path="trainer.sync", hint=hint)


def _is_stale(options: PolicyOptions, context: BuildContext) -> bool:
    """Is pi_old another policy than the one that sampled? Then pi_theta / pi_old is exactly 1 at
    the first update, however stale the tokens are.
    """
    return context.staleness > 0 and options.old_policy in (None, "recompute")


def _no_correction(context: BuildContext) -> str:
    return (
        f"run.staleness is {context.staleness}, and old_policy: recompute takes the weights before "
        "the step for pi_old, whichever weights sampled the tokens: no objective's importance "
        "ratio corrects for staleness"
    )


def _uncorrected_staleness(options: PolicyOptions, context: BuildContext) -> Iterator[Problem]:
    if options.correction is None and _is_stale(options, context):
        yield Problem(
            message=_no_correction(context),
            path="trainer.correction",
            expected="truncate, mask or reject; or trainer.old_policy: rollout_version, with "
            f"keep_versions at least {context.staleness + 1}, or rollout_engine",
            hint="correction: none trains without one",
        )


def _corrected_twice(options: PolicyOptions, correction: CorrectionOptions) -> Iterator[Problem]:
    if options.old_policy == "rollout_engine" and correction.method != "none":
        yield Problem(
            message="old_policy: rollout_engine takes the sampler's own log-probabilities for "
            f"pi_old: pi_old / mu_old is 1, and correction: {correction.method} changes nothing",
            path="trainer.correction",
            expected="correction: none, or old_policy: recompute or rollout_version",
        )


def _too_few_versions(options: PolicyOptions, context: BuildContext) -> Iterator[Problem]:
    """A token may come from the current version or any of the `staleness` versions before it."""
    needed = context.staleness + 1
    if options.old_policy != "rollout_version":
        return
    if context.exceeds_staleness:
        yield Problem(
            message="old_policy: rollout_version stores the newest versions of the weights, and a "
            "slow group of the stream may be older than any number of them",
            path="trainer.old_policy",
            expected="recompute with a correction, or rollout_engine",
            hint="run.too_stale: drop leaves such groups out",
        )
    elif options.keep_versions < needed:
        yield Problem(
            message=f"run.staleness is {context.staleness}: a step's tokens are of up to {needed} "
            f"versions, and {options.keep_versions} are stored for old_policy: rollout_version",
            path="trainer.keep_versions",
            expected=f"at least {needed}",
            hint="trainer.old_policy: rollout_engine stores no weights",
        )
