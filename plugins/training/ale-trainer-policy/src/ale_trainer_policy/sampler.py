"""The distribution that is trained must be the one that is sampled from."""

from attrs import evolve

from ale.errors import InputError, Problem
from ale.protocols import LLM
from ale.types import Sampling
from ale_trainer_policy.options import LearnOptions


def with_temperature(options: LearnOptions, llm: LLM | None, *, reinforces: bool) -> LearnOptions:
    """The options with a temperature: the sampler's own, where none is given.

    Args:
        llm: samples; its attribute `sampling` says with what where a request leaves it open.
        reinforces: log-probabilities are weighed against the sampler's, so that they must be of
            the same distribution. Imitation may have any temperature.

    Raises:
        InputError: they are not, or the model does not say how it samples.
    """
    given, sampling = options.temperature, getattr(llm, "sampling", None)
    if sampling is None or sampling.temperature is None:
        if given is None:
            message = f"the model {type(llm).__name__} does not say at which temperature it samples"
            expected = "trainer.temperature: that of the sampler"
            raise InputError(
                [Problem(path="trainer.temperature", message=message, expected=expected)]
            )
        return options
    if not reinforces:
        # A greedy sampler takes the likeliest token, which no temperature changes.
        return evolve(options, temperature=given or sampling.temperature or 1.0)
    problems = [*_narrower(sampling), *_another(given, sampling.temperature)]
    if problems:
        raise InputError(problems)
    return evolve(options, temperature=sampling.temperature)


def _narrower(sampling: Sampling) -> list[Problem]:
    found = []
    if sampling.temperature == 0:
        message = "the model takes the likeliest token: what is certain teaches nothing"
        hint = "llm.temperature: 1.0"
        found.append(Problem(path="llm.temperature", message=message, hint=hint))
    if sampling.top_p is not None and sampling.top_p < 1:
        message = f"the model samples from the likeliest tokens alone (top_p {sampling.top_p:g})"
        expected = "top_p: 1, as the trainer's probabilities are over all tokens"
        found.append(Problem(path="llm.top_p", message=message, expected=expected))
    return found


def _another(given: float | None, sampled: float | None) -> list[Problem]:
    if given is None or given == sampled:
        return []
    message = f"the trainer's temperature is {given:g}, and the model samples at {sampled:g}"
    hint = "leave trainer.temperature out: it is then llm.temperature"
    return [Problem(path="trainer.temperature", message=message, hint=hint)]
