"""The options of ``litellm``."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen, validators

from ale.plugin import doc
from ale_openai_wire import ChatOptions


@frozen(kw_only=True)
class LiteLLMOptions(ChatOptions):
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
    drop_params: bool = field(
        default=False,
        metadata=doc("Leave out what the provider does not take, in place of an error."),
    )
    extra: Mapping[str, Any] = field(
        factory=dict, metadata=doc("Further arguments of litellm.acompletion.")
    )
