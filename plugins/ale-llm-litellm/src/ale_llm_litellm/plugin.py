"""What this package offers: ``litellm``."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from attrs import field, frozen, validators

from ale.errors import InputError, NotUsableError, Problem
from ale.plugin import BuildContext, Component, Probe, Secret, doc, ge, gt, hookimpl, le
from ale.protocols import LLM

REMEDY = "pip install litellm"


@frozen(kw_only=True)
class LiteLLMOptions:
    """A model of any provider that litellm knows."""

    model: str = field(
        validator=validators.matches_re(r".+/.+"),
        metadata=doc("Provider and model, as in anthropic/claude-sonnet-4-5."),
    )
    api_base: str | None = field(
        default=None, metadata=doc("Where the API is. Default: the provider's own place.")
    )
    api_key_env: str | None = field(
        default=None,
        metadata=doc("Environment variable with the key. Default: the one that litellm looks for."),
    )
    temperature: float | None = field(
        default=None, validator=validators.optional(ge(0)), metadata=doc("Default: the provider's.")
    )
    top_p: float | None = field(
        default=None,
        validator=validators.optional(validators.and_(gt(0), le(1))),
        metadata=doc("Default: the provider's."),
    )
    max_tokens: int | None = field(
        default=None,
        validator=validators.optional(ge(1)),
        metadata=doc("Tokens of one answer, at most. Default: the provider's."),
    )
    send_seed: bool = field(
        default=True,
        metadata=doc(
            "Send a seed, made from the episode's seed and the turn, to providers that take one."
        ),
    )
    tools: bool = field(default=True, metadata=doc("The model takes tools."))
    reasoning_field: Literal["reasoning", "reasoning_content"] | None = field(
        default=None, metadata=doc("Field in which earlier reasoning is sent back; none leaves it.")
    )
    drop_params: bool = field(
        default=False,
        metadata=doc("Leave out what the provider does not take, in place of an error."),
    )
    timeout_s: float = field(
        default=120.0, validator=gt(0), metadata=doc("Seconds of one attempt, to its last byte.")
    )
    deadline_s: float = field(
        default=600.0,
        validator=gt(0),
        metadata=doc("Seconds of all attempts at one answer, with the waits between them."),
    )
    max_retries: int = field(
        default=5,
        validator=ge(0),
        metadata=doc("After 408, 409, 425, 429, 5xx, lost connections, timeouts, broken answers."),
    )
    retry_min_s: float = field(
        default=0.5,
        validator=ge(0),
        metadata=doc("First wait; doubles, less up to half at random."),
    )
    retry_max_s: float = field(
        default=30.0,
        validator=ge(0),
        metadata=doc("Longest wait, except where the server asks for a longer one."),
    )
    max_concurrency: int = field(
        default=64, validator=ge(1), metadata=doc("Requests under way at once; others wait.")
    )
    extra: Mapping[str, Any] = field(
        factory=dict, metadata=doc("Further arguments of litellm.acompletion.")
    )

    def __attrs_post_init__(self) -> None:
        if self.retry_max_s < self.retry_min_s:
            raise ValueError("'retry_max_s' is less than 'retry_min_s'")


def key_from(options: LiteLLMOptions, context: BuildContext) -> Secret | None:
    """The key that `api_key_env` names; None where it names none.

    Raises:
        InputError: the variable is not set, or empty.
    """
    if options.api_key_env is None:
        return None
    key = context.secret(options.api_key_env)
    if key is None or not key.value.strip():
        problem = Problem(
            path="llm.api_key_env",
            message=f"the environment variable {options.api_key_env} is not set",
            hint=f"export {options.api_key_env}=...",
        )
        raise InputError([problem])
    return Secret(key.value.strip())


def _build(options: LiteLLMOptions, context: BuildContext) -> LLM:
    key = key_from(options, context)
    found = probe()
    if not found.usable:
        raise NotUsableError(f"{found.reason}: {found.remedy}")
    from ale_llm_litellm.client import LiteLLM

    return LiteLLM(options, key=key, context=context)


def probe() -> Probe:
    """Is litellm there? It is not imported, which takes seconds, and nobody is asked."""
    return Probe.of_package("litellm", remedy=REMEDY)


@hookimpl
def ale_llms() -> Sequence[Component[LiteLLMOptions, LLM]]:
    """Offer ``litellm``."""
    return [
        Component(
            "litellm",
            LiteLLMOptions,
            _build,
            summary="Any provider that litellm knows; no token ids.",
            probe=probe,
        )
    ]
