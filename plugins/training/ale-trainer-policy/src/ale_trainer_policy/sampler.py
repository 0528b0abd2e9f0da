"""Checks that the trainer scores the distribution that the model samples from."""

from attrs import evolve

from ale.errors import InputError, Problem
from ale.protocols import LLM
from ale.types import Sampling
from ale_trainer_policy.options import LearnOptions


def adopt_temperature(options: LearnOptions, llm: LLM | None, *, uses_ratio: bool) -> LearnOptions:
    """The options with the sampler's temperature, if none is given.

    Args:
        llm: samples; its attribute `sampling` has the defaults of every request.
        uses_ratio: log-probabilities are compared with the sampler's, so both must be of the same
            distribution. Imitation may use any temperature.

    Raises:
        InputError: the distributions differ, or the model does not state its temperature.
    """
    given, sampling = options.temperature, getattr(llm, "sampling", None)
    if sampling is None or sampling.temperature is None:
        if given is None:
            message = f"the model {type(llm).__name__} does not state its sampling temperature"
            expected = "trainer.temperature: that of the sampler"
            raise InputError(
                [Problem(path="trainer.temperature", message=message, expected=expected)]
            )
        return options
    if not uses_ratio:
        # Any temperature is consistent with greedy samples.
        return evolve(options, temperature=given or sampling.temperature or 1.0)
    problems = [*_unscorable(sampling), *_different_temperature(given, sampling.temperature)]
    if problems:
        raise InputError(problems)
    return evolve(options, temperature=sampling.temperature)


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


def _different_temperature(given: float | None, sampled: float | None) -> list[Problem]:
    if given is None or given == sampled:
        return []
    message = f"the trainer's temperature is {given:g}, and the model samples at {sampled:g}"
    hint = "leave trainer.temperature out: the default is llm.temperature"
    return [Problem(path="trainer.temperature", message=message, hint=hint)]
