"""Registers the model ``litellm``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import LLM
    from ale_llm_litellm.options import LiteLLMOptions

REMEDY = "pip install litellm"


def _build(options: LiteLLMOptions, context: BuildContext) -> LLM:
    from ale_openai_wire import key_from

    key = key_from(options.api_key_env, context.environ)
    probe().check()
    from ale_llm_litellm.client import LiteLLM

    return LiteLLM(options, key=key, context=context)


def probe() -> Probe:
    """Is litellm installed? It is not imported, as that takes seconds, and no server is asked."""
    return Probe.of_package("litellm", remedy=REMEDY)


@hookimpl
def ale_llms() -> Sequence[Component[LiteLLMOptions, LLM]]:
    """Register ``litellm``."""
    return [
        Component(
            "litellm",
            "ale_llm_litellm.options:LiteLLMOptions",
            _build,
            summary="Any provider that litellm knows; no token ids.",
            probe=probe,
        )
    ]
