"""Where the sampler computes probabilities otherwise than the trainer."""

import logging

from ale.errors import InputError, Problem
from ale.protocols import LLM
from ale_trainer_policy.options import PolicyOptions, resolve_correction
from ale_training.policy import other_engine

_LOG = logging.getLogger(__name__)


def check_engine(llm: LLM | None, options: PolicyOptions) -> None:
    """Ask for a correction where another engine than the trainer's samples.

    Raises:
        InputError: it does, and no correction was chosen.
    """
    other = other_engine(llm)
    if other is None or options.old_policy == "rollout_engine":
        return
    if resolve_correction(options.correction).method != "none":
        return
    message = f"{other.message}: no objective's importance ratio corrects for that"
    if other.certain and options.correction is None:
        raise InputError(
            [
                Problem(
                    message=message,
                    path="trainer.correction",
                    expected="truncate, mask or reject; or trainer.old_policy: rollout_engine",
                    hint="correction: none trains without one",
                )
            ]
        )
    _LOG.warning("warning: %s; trainer.correction does", message)
