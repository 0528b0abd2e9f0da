"""What this package offers: ``openai``, and presets that differ in where they look alone."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from attrs import field, frozen, validators

from ale.errors import InputError, Problem
from ale.plugin import BuildContext, Component, Probe, Secret, doc, ge, gt, hookimpl, le
from ale.protocols import LLM

_at_least_0 = validators.optional(ge(0))


def _base_url(default: str) -> Any:
    return field(
        default=default,
        validator=validators.matches_re(r"https?://[^\s]+"),
        metadata=doc("Where the API is, up to and including /v1."),
    )


@frozen(kw_only=True)
class OpenAIOptions:
    """A model behind the OpenAI chat API."""

    base_url: str = _base_url("https://api.openai.com/v1")
    model: str = field(metadata=doc("Name of the model, as the server lists it."))
    api_key_env: str | None = field(
        default=None,
        metadata=doc("Environment variable with the key; none for a server that checks none."),
    )
    temperature: float | None = field(
        default=None, validator=_at_least_0, metadata=doc("Default: the server's.")
    )
    top_p: float | None = field(
        default=None,
        validator=validators.optional(validators.and_(gt(0), le(1))),
        metadata=doc("Default: the server's."),
    )
    max_tokens: int | None = field(
        default=None,
        validator=validators.optional(ge(1)),
        metadata=doc("Tokens of one answer, at most. Default: the server's."),
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = field(
        default="max_tokens",
        metadata=doc("Its name in the request; OpenAI's reasoning models want the longer one."),
    )
    send_seed: bool = field(
        default=True, metadata=doc("Send a seed, made from the episode's seed and the turn.")
    )
    tools: bool = field(default=True, metadata=doc("The model takes tools."))
    reasoning_field: Literal["reasoning", "reasoning_content"] | None = field(
        default=None, metadata=doc("Field in which earlier reasoning is sent back; none leaves it.")
    )
    return_token_ids: bool = field(
        default=False,
        metadata=doc("Ask for token ids and log-probabilities (vLLM; SGLang without stream)."),
    )
    logprobs_mode: Literal["raw", "processed"] = field(
        default="raw",
        metadata=doc(
            "What the server's log-probabilities are of: the model's own distribution, which "
            "needs temperature 1 and top_p 1, or the one that is sampled from."
        ),
    )
    stream: bool = field(default=False, metadata=doc("Receive answers as server-sent events."))
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
    max_response_bytes: int = field(
        default=64 << 20,
        validator=ge(1),
        metadata=doc("An answer longer than this is dropped, unread, and is an error."),
    )
    extra_body: Mapping[str, Any] = field(
        factory=dict, metadata=doc("Further fields of the request, such as top_k for vLLM.")
    )

    def __attrs_post_init__(self) -> None:
        if self.retry_max_s < self.retry_min_s:
            raise ValueError("'retry_max_s' is less than 'retry_min_s'")
        raw = self.return_token_ids and self.logprobs_mode == "raw"
        if raw and (self.temperature, self.top_p) != (1, 1):
            raise ValueError(
                "'return_token_ids' with raw log-probabilities needs temperature: 1 and top_p: 1, "
                "or they are not those of the tokens' sampler; or have the server give those, and "
                "set logprobs_mode: processed"
            )


@frozen(kw_only=True)
class LMStudioOptions(OpenAIOptions):
    """A model that LM Studio serves on this machine."""

    base_url: str = _base_url("http://127.0.0.1:1234/v1")


@frozen(kw_only=True)
class VLLMOptions(OpenAIOptions):
    """A model that vLLM serves on this machine."""

    base_url: str = _base_url("http://127.0.0.1:8000/v1")


@frozen(kw_only=True)
class SGLangOptions(OpenAIOptions):
    """A model that SGLang serves on this machine."""

    base_url: str = _base_url("http://127.0.0.1:30000/v1")


@frozen(kw_only=True)
class OllamaOptions(OpenAIOptions):
    """A model that Ollama serves on this machine."""

    base_url: str = _base_url("http://127.0.0.1:11434/v1")


def key_from(options: OpenAIOptions, context: BuildContext) -> Secret | None:
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
            hint=f"export {options.api_key_env}=..., or leave api_key_env out for a server "
            "that checks no key",
        )
        raise InputError([problem])
    return Secret(key.value.strip())


def _build(options: OpenAIOptions, context: BuildContext) -> LLM:
    key = key_from(options, context)
    from ale_llm_openai.client import OpenAILLM

    return OpenAILLM(options, key=key, context=context)


def probe() -> Probe:
    """Is the SDK there? No server is asked: which one it will be stands in a config."""
    return Probe.of_package("openai", remedy="pip install 'openai>=2.20,<4'")


_PRESETS: Mapping[str, tuple[type[OpenAIOptions], str]] = {
    "openai": (OpenAIOptions, "Any server with the OpenAI chat API."),
    "lmstudio": (LMStudioOptions, "LM Studio on this machine, port 1234."),
    "vllm": (VLLMOptions, "vLLM on this machine, port 8000."),
    "sglang": (SGLangOptions, "SGLang on this machine, port 30000."),
    "ollama": (OllamaOptions, "Ollama on this machine, port 11434."),
}


@hookimpl
def ale_llms() -> Sequence[Component[Any, LLM]]:
    """Offer ``openai`` and its presets."""
    return [
        Component(name, options, _build, summary=summary, probe=probe)
        for name, (options, summary) in _PRESETS.items()
    ]
