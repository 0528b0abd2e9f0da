"""Samplers that compute probabilities differently from the trainer."""

import logging

from ale.errors import InputError
from ale.protocols import TrainablePolicy
from ale_trainer_policy.options import PolicyOptions, resolve_correction
from ale_training.policy import other_engine

_LOG = logging.getLogger(__name__)


def check_engine(policy: TrainablePolicy, options: PolicyOptions) -> None:
    """Require a correction where the sampling engine is not the trainer's.

    Raises:
        InputError: another engine samples, and no correction was chosen.
    """
    other = other_engine(policy)
    if other is None or options.old_policy == "rollout_engine":
        return
    if resolve_correction(options.correction).method != "none":
        return
    message = f"{other.message}: no objective's importance ratio corrects for that"
    if other.certain and options.correction is None:
        raise InputError.of(
            message,
            path="trainer.correction",
            expected="truncate, mask or reject; or trainer.old_policy: rollout_engine",
            hint="correction: none trains without one",
        )
    _LOG.warning("warning: %s; trainer.correction does", message)
