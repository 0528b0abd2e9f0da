"""The model that samples, as a trainer takes it: its policy and its sampling temperature."""

from __future__ import annotations

from typing import cast

from attrs import frozen

from ale.errors import InputError, Problem
from ale.protocols import LLM, TrainablePolicy, missing
from ale.types import HandOver, Sampling


def trainable(llm: LLM | None) -> TrainablePolicy:
    """The model component as one that can be trained.

    Raises:
        InputError: it lacks members of `TrainablePolicy`, which are named, or gives no token ids.
    """
    if llm is None:
        raise _refused("this trainer needs section 'llm': it trains the model that samples")
    if not llm.capabilities.token_ids:
        raise _refused(
            f"the model {type(llm).__name__} gives no token ids, and nothing is tokenised again "
            "to replace them"
        )
    if lacking := missing(llm, TrainablePolicy):
        names = ", ".join(f"'{each}'" for each in lacking)
        raise _refused(
            f"the model {type(llm).__name__} can't be trained in this process: it lacks {names} of "
            "ale.protocols.TrainablePolicy"
        )
    return cast(TrainablePolicy, llm)


def attach(policy: TrainablePolicy, hand_over: HandOver) -> None:
    """Begin to train a policy, which will get its weights in this way.

    Raises:
        InputError: it does not take weights in this way.
    """
    if hand_over not in policy.hand_overs:
        taken = ", ".join(sorted(policy.hand_overs)) or "in no way"
        raise InputError.of(
            f"this trainer hands over its weights {_HOW[hand_over]}, which the model "
            f"{type(policy).__name__} does not take",
            path="trainer.type",
            expected=f"a trainer that hands over in one of these ways: {taken}",
            hint="trainer: {type: policy, sync: same} is in-place, sync: copy is tensors",
        )
    policy.attached()


_HOW: dict[HandOver, str] = {
    "in-place": "in place",
    "tensors": "as tensors",
    "folder": "in a folder",
}


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


def other_engine(policy: TrainablePolicy) -> OtherEngine | None:
    """Facts about an engine that computes probabilities differently from a trainer.

    Returns:
        None if both compute in the same way.
    """
    same = policy.same_engine
    if same:
        return None
    known = "the model is sampled in" if same is False else "servers of a registry may run"
    message = f"{known} another engine than the trainer's, whose probabilities differ"
    return OtherEngine(same is False, message)


def sampled_temperature(
    given: float | None, policy: TrainablePolicy, *, uses_ratio: bool = True
) -> float:
    """The temperature to score at: the sampler's own.

    Args:
        given: ``trainer.temperature``.
        policy: the model that samples.
        uses_ratio: log-probabilities are compared with the sampler's, so both must come from the
            same distribution. Imitation may use any temperature.

    Raises:
        InputError: the distributions differ, or no temperature is given anywhere.
    """
    sampling = policy.sampling
    if sampling.temperature is None:
        if given is None:
            message = f"the model {type(policy).__name__} does not state its sampling temperature"
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
