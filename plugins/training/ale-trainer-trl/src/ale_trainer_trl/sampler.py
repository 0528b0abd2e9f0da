"""GRPO's log-probabilities must be of the distribution that the episodes were sampled from."""

from ale.errors import InputError, Problem
from ale.protocols import LLM


def sampled_temperature(given: float | None, llm: LLM | None) -> float:
    """The temperature to score at: the sampler's own.

    Args:
        given: ``trainer.temperature``.
        llm: samples; its attribute `sampling` has the defaults of every request.

    Raises:
        InputError: TRL can't score what this model samples: it samples greedily or by top-p, its
            temperature is another one than the given one, or nobody states a temperature.
    """
    sampling = getattr(llm, "sampling", None)
    sampled = given if sampling is None else sampling.temperature
    if sampled is None:
        message = f"the model {type(llm).__name__} does not state its sampling temperature"
        expected = "trainer.temperature: that of the sampler"
        problem = Problem(path="trainer.temperature", message=message, expected=expected)
        raise InputError([problem])
    problems = []
    if sampled == 0:
        message = "the model samples greedily, at temperature 0: every ratio would be 1"
        problems.append(Problem(path="llm.temperature", message=message, hint="1.0"))
    if sampling is not None and sampling.top_p is not None and sampling.top_p < 1:
        message = f"the model samples with top_p {sampling.top_p:g}, not scored by TRL"
        problems.append(Problem(path="llm.top_p", message=message, expected="top_p: 1"))
    if given is not None and given != sampled:
        message = f"the trainer's temperature is {given:g}, and the model samples at {sampled:g}"
        hint = "leave trainer.temperature out: the default is llm.temperature"
        problems.append(Problem(path="trainer.temperature", message=message, hint=hint))
    if problems:
        raise InputError(problems)
    return sampled
