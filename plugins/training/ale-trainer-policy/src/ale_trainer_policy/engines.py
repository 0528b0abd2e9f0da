"""Where the sampler computes probabilities otherwise than the trainer."""

import logging

from ale.errors import InputError, Problem
from ale.protocols import LLM
from ale_trainer_policy.options import PolicyOptions, resolve_correction

_LOG = logging.getLogger(__name__)


def check_engine(llm: LLM | None, options: PolicyOptions) -> None:
    """Ask for a correction where another program than the trainer's samples.

    Args:
        llm: samples; its attribute `same_engine` says whether it computes as the trainer does: None
            where that is not known.

    Raises:
        InputError: it does not, and no correction was chosen.
    """
    same = getattr(llm, "same_engine", True)
    if same or options.old_policy == "rollout_engine":
        return
    if resolve_correction(options.correction).method != "none":
        return
    known = "the model is sampled in" if same is False else "servers of a registry may run"
    message = (
        f"{known} another engine than the trainer's, whose probabilities differ: no objective's "
        "importance ratio corrects for that"
    )
    if same is False and options.correction is None:
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
