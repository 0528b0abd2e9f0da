"""Builds the trainers from their options."""

import logging
from collections.abc import Mapping

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.protocols import TrainablePolicy
from ale.types import Batch
from ale_trainer_trl.learning.learner import Learner, Settings
from ale_trainer_trl.options import DpoOptions, GrpoOptions
from ale_trainer_trl.targets import groups_of, pairs_of
from ale_trainer_trl.trainer import TrlTrainer
from ale_training.policy import other_engine, sampled_temperature

_LOG = logging.getLogger(__name__)


def dpo_trainer(options: DpoOptions, context: BuildContext) -> TrlTrainer:
    """Preferences between the episodes of each step."""

    def update(learner: Learner, batch: Batch) -> Mapping[str, float]:
        found = pairs_of(batch, options)
        measured = learner.dpo_update(found.pairs) if found.pairs else {}
        return {**found.counts, **measured}

    def settings(_: TrainablePolicy) -> Settings:
        return Settings(
            options=options,
            seed=context.seed,
            epochs=options.epochs,
            extra={
                "beta": options.beta,
                "loss_type": [options.loss],
                "label_smoothing": options.label_smoothing,
            },
        )

    return TrlTrainer("dpo", settings, update)


def grpo_trainer(options: GrpoOptions, context: BuildContext) -> TrlTrainer:
    """Group-relative reinforcement on the episodes of each step.

    Raises:
        InputError: ``run.staleness`` is above 0: TRL takes every episode for a sample of the
            current weights.
    """
    if context.staleness > 0:
        raise InputError.of(
            f"run.staleness is {context.staleness}, and TRL's GRPO takes the "
            "episodes of a step for samples of the current weights",
            path="run.staleness",
            expected="run.staleness 0",
            hint="or trainer: {type: policy, correction: truncate}; TRL corrects only "
            "what its own vLLM has sampled",
        )

    def update(learner: Learner, batch: Batch) -> Mapping[str, float]:
        found = groups_of(batch, options)
        measured = learner.grpo_update(found.groups) if found.signal else {}
        return {**found.counts, **measured}

    def settings(policy: TrainablePolicy) -> Settings:
        _check_engine(policy)
        return Settings(
            options=options,
            seed=context.seed,
            epochs=options.iterations,
            extra={
                "loss_type": options.loss,
                "scale_rewards": options.scale_rewards,
                "epsilon": options.epsilon,
                "epsilon_high": options.epsilon_high,
                "temperature": sampled_temperature(options.temperature, policy),
            },
        )

    return TrlTrainer("grpo", settings, update)


def _check_engine(policy: TrainablePolicy) -> None:
    """Raise `InputError` if another engine samples; warn if another engine might."""
    other = other_engine(policy)
    if other is None:
        return
    message = f"{other.message}: TRL's GRPO has no correction for that here"
    hint = "trainer: {type: policy, correction: truncate}"
    if other.certain:
        raise InputError.of(message, path="trainer.type", hint=hint)
    _LOG.warning("warning: %s; use %s", message, hint)
