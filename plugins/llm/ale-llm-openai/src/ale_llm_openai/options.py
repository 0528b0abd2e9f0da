"""The options of ``openai`` and of its presets, which differ only in their default URL."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from attrs import field, frozen, validators

from ale.plugin import doc
from ale.strict import Former
from ale_openai_wire import ChatOptions, samples_as_model


def _base_url(default: str) -> Any:
    return field(
        default=default,
        validator=validators.matches_re(r"https?://[^\s]+"),
        metadata=doc("URL of the API, up to and including /v1.", changeable=True),
    )


@frozen(kw_only=True)
class OpenAIOptions(ChatOptions):
    """A model behind the OpenAI chat API."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "max_response_bytes": Former(64 << 20),
    }
    server: ClassVar[str | None] = None
    """Its name, as `unreachable` takes it; None where it may be any."""

    base_url: str = _base_url("https://api.openai.com/v1")
    model: str = field(metadata=doc("Name of the model, as the server lists it."))
    api_key_env: str | None = field(
        default=None,
        metadata=doc(
            "Environment variable with the key; null for a server that does not check one. "
            "Default at api.openai.com: OPENAI_API_KEY.",
            changeable=True,
        ),
    )
    placeholder_key: str = field(
        default="none",
        validator=validators.matches_re(r"[!-~]+"),  # a header has no other characters
        metadata=doc(
            "Key that is sent if api_key_env is not given. It is stored with the run, so never "
            "give a real key.",
            changeable=True,
        ),
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = field(
        default="max_tokens",
        metadata=doc(
            "Name of the field in the request; OpenAI's reasoning models need the longer one."
        ),
    )
    return_token_ids: bool = field(
        default=False,
        metadata=doc("Ask for token ids and log-probabilities (vLLM; SGLang without stream)."),
    )
    logprobs_mode: Literal["raw", "processed"] = field(
        default="raw",
        metadata=doc(
            "What the server's log-probabilities are of: the model's own distribution ('raw'), "
            "which needs temperature 1 and top_p 1, or the one that is sampled from ('processed')."
        ),
    )
    stream: bool = field(default=False, metadata=doc("Receive answers as server-sent events."))
    extra_body: Mapping[str, Any] = field(
        factory=dict, metadata=doc("Further fields of the request, such as top_k for vLLM.")
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        raw = self.return_token_ids and self.logprobs_mode == "raw"
        fields = {"temperature": self.temperature, "top_p": self.top_p, **self.extra_body}
        if raw and not samples_as_model(fields):
            raise ValueError(
                "'return_token_ids' with raw log-probabilities needs temperature: 1 and top_p: 1, "
                "and no field in extra_body that changes probabilities, or they are not those of "
                "the tokens' sampler; or have the server give those, and set "
                "logprobs_mode: processed"
            )


@frozen(kw_only=True)
class LMStudioOptions(OpenAIOptions):
    """A model that LM Studio serves on this machine."""

    server: ClassVar[str | None] = "lmstudio"
    base_url: str = _base_url("http://127.0.0.1:1234/v1")


@frozen(kw_only=True)
class VLLMOptions(OpenAIOptions):
    """A model that vLLM serves on this machine."""

    server: ClassVar[str | None] = "vllm"
    base_url: str = _base_url("http://127.0.0.1:8000/v1")


@frozen(kw_only=True)
class SGLangOptions(OpenAIOptions):
    """A model that SGLang serves on this machine."""

    server: ClassVar[str | None] = "sglang"
    base_url: str = _base_url("http://127.0.0.1:30000/v1")


_IGNORED_BY_OLLAMA: Mapping[str, str] = {
    "num_ctx": "set OLLAMA_CONTEXT_LENGTH for the server, or num_ctx in a Modelfile",
    "options": "set them as parameters in a Modelfile",
    "keep_alive": "set OLLAMA_KEEP_ALIVE for the server",
    "think": "give reasoning_effort: none, low, medium or high",
}
"""Fields of Ollama's own API, and the equivalent for requests to its OpenAI API."""


@frozen(kw_only=True)
class OllamaOptions(OpenAIOptions):
    """A model that Ollama serves on this machine."""

    server: ClassVar[str | None] = "ollama"
    base_url: str = _base_url("http://127.0.0.1:11434/v1")

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        for name, instead in _IGNORED_BY_OLLAMA.items():
            if name in self.extra_body:
                raise ValueError(
                    f"'extra_body': Ollama's OpenAI API takes no {name} and would ignore it; "
                    f"{instead}"
                )


@frozen(kw_only=True)
class SemanticRouterOptions(OpenAIOptions):
    """What vLLM Semantic Router serves on this machine: it chooses a model for each request."""

    base_url: str = _base_url("http://127.0.0.1:8801/v1")
    model: str = field(
        default="auto",
        metadata=doc(
            "Name for which the router chooses a model; a model of another name is asked directly."
        ),
    )
