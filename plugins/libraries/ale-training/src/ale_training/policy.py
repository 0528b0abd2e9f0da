"""The model that samples, as a trainer takes it: its policy and its sampling temperature."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from attrs import frozen

from ale.errors import InputError, Problem
from ale.protocols import LLM
from ale.types import Sampling

if TYPE_CHECKING:
    import torch


class InProcess(Protocol):
    """The attribute `policy` of a model component that runs in this process."""

    model: Any
    """A transformers causal model."""
    tokenizer: Any
    version: int
    fingerprint: str
    """Fingerprint of architecture and vocabulary, not of weights."""
    lock: AbstractContextManager[Any]
    """Held while the model runs or its weights change."""


def policy_of(llm: LLM | None) -> InProcess:
    """The policy of a model component, for a trainer that will train it.

    A component that has to prepare for this has a method `attached`, which is called.

    Raises:
        InputError: the component has no policy, or records no token ids.
    """
    if llm is None:
        raise _refused("this trainer needs section 'llm': it trains the model that samples")
    if not llm.capabilities.token_ids:
        raise _refused(
            f"the model {type(llm).__name__} gives no token ids, and nothing is tokenised again "
            "to replace them"
        )
    policy = getattr(llm, "policy", None)
    if attached := getattr(llm, "attached", None):
        attached()
    if policy is None or not hasattr(policy, "model"):
        raise _refused(f"the model {type(llm).__name__} does not run in this process")
    found: InProcess = policy
    return found


def training_device(llm: LLM | None) -> torch.device:
    """The device on which the model of a component is trained.

    A component that does not itself sample names it in its attribute `training_device` and keeps
    its weights in the processor's memory: if they are sharded, no GPU needs to hold them whole.
    """
    given: torch.device | None = getattr(llm, "training_device", None)
    return given or next(policy_of(llm).model.parameters()).device


def _refused(message: str) -> InputError:
    return InputError.of(
        message,
        path="trainer.type",
        expected="a model in this process that records token ids and log-probabilities",
        hint="llm: {type: policy, ...}; or run without a trainer, and train on the data set that "
        "`ale data` makes of the run",
    )


@frozen
class OtherEngine:
    """Samples may come from another engine, whose probabilities differ from the trainer's."""

    certain: bool
    message: str


def other_engine(llm: LLM | None) -> OtherEngine | None:
    """Facts about an engine that computes probabilities differently from a trainer.

    Args:
        llm: the model that samples. Its attribute `same_engine` says whether it computes as a
            trainer in this process does; None: not known. Without the attribute, it does.

    Returns:
        None if both compute in the same way.
    """
    same: bool | None = getattr(llm, "same_engine", True)
    if same:
        return None
    known = "the model is sampled in" if same is False else "servers of a registry may run"
    message = f"{known} another engine than the trainer's, whose probabilities differ"
    return OtherEngine(same is False, message)


def sampled_temperature(given: float | None, llm: LLM | None, *, uses_ratio: bool = True) -> float:
    """The temperature to score at: the sampler's own.

    Args:
        given: ``trainer.temperature``.
        llm: the model that samples; its attribute `sampling` has the defaults of every request.
        uses_ratio: log-probabilities are compared with the sampler's, so both must come from the
            same distribution. Imitation may use any temperature.

    Raises:
        InputError: the distributions differ, or no temperature is given anywhere.
    """
    sampling = getattr(llm, "sampling", None)
    if sampling is None or sampling.temperature is None:
        if given is None:
            message = f"the model {type(llm).__name__} does not state its sampling temperature"
            expected = "trainer.temperature: that of the sampler"
            raise InputError.of(message, path="trainer.temperature", expected=expected)
        return given
    sampled = float(sampling.temperature)
    if not uses_ratio:
        # Any temperature is consistent with greedy samples.
        return given or sampled or 1.0
    if problems := [*_unscorable(sampling), *_different_temperature(given, sampled)]:
        raise InputError(problems)
    return sampled


def _unscorable(sampling: Sampling) -> list[Problem]:
    found = []
    if sampling.temperature == 0:
        message = "the model samples greedily, at temperature 0: every ratio would be 1"
        hint = "llm.temperature: 1.0"
        found.append(Problem(path="llm.temperature", message=message, hint=hint))
    if sampling.top_p is not None and sampling.top_p < 1:
        message = f"the model samples with top_p {sampling.top_p:g}, below 1"
        expected = "top_p: 1, as the trainer's probabilities are over all tokens"
        found.append(Problem(path="llm.top_p", message=message, expected=expected))
    return found


def _different_temperature(given: float | None, sampled: float) -> list[Problem]:
    if given is None or given == sampled:
        return []
    message = f"the trainer's temperature is {given:g}, and the model samples at {sampled:g}"
    hint = "leave trainer.temperature out: the default is llm.temperature"
    return [Problem(path="trainer.temperature", message=message, hint=hint)]
