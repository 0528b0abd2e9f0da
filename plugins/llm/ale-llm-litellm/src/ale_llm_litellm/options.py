"""The options of ``litellm``."""

from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import field, frozen, validators

from ale.plugin import doc
from ale.strict import Former
from ale_openai_wire import ChatOptions


@frozen(kw_only=True)
class LiteLLMOptions(ChatOptions):
    """A model of any provider that litellm knows."""

    former_options: ClassVar[Mapping[str, Former]] = {
        "drop_params": Former(False, "extra: {drop_params: true}"),
    }

    model: str = field(
        validator=validators.min_len(1),
        metadata=doc(
            "Provider and model, such as anthropic/claude-sonnet-4-5; with base_url, the name of a "
            "model alone is one behind the OpenAI chat API."
        ),
    )
    base_url: str | None = field(
        default=None, metadata=doc("URL of the API. Default: the provider's own.", changeable=True)
    )
    api_key_env: str | None = field(
        default=None,
        metadata=doc(
            "Environment variable with the key. Default: the one that litellm looks for.",
            changeable=True,
        ),
    )
    extra: Mapping[str, Any] = field(
        factory=dict, metadata=doc("Further arguments of litellm.acompletion.")
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if "/" not in self.model and self.base_url is None:
            raise ValueError(
                f"'model' needs a provider, as in openai/{self.model}, where no base_url is given"
            )

    @property
    def provider_and_model(self) -> str:
        """Provider and model in the form that litellm takes."""
        return self.model if "/" in self.model else f"openai/{self.model}"
