"""Registers ``openai`` and presets that differ only in their default URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import LLM
    from ale_llm_openai.options import OpenAIOptions


_OWN_KEY = "OPENAI_API_KEY"
"""The variable with the key of OpenAI's own server; never sent to another one unasked."""


def _build(options: OpenAIOptions, context: BuildContext) -> LLM:
    from attrs import evolve

    from ale_openai_wire import key_from

    official = urlsplit(options.base_url).hostname == "api.openai.com"
    if official and options.api_key_env is None and context.environ.get(_OWN_KEY):
        options = evolve(options, api_key_env=_OWN_KEY)
    otherwise = ", or leave api_key_env out for a server that checks no key"
    key = key_from(options.api_key_env, context.environ, otherwise=otherwise)
    from ale_llm_openai.client import OpenAILLM

    return OpenAILLM(options, key=key, context=context)


def probe() -> Probe:
    """Is the SDK installed? No server is asked: its URL is in a config."""
    return Probe.of_package("openai", remedy="pip install 'openai>=1.55.3,<4'")


_PRESETS: Mapping[str, tuple[str, str]] = {
    "openai": ("OpenAIOptions", "Any server with the OpenAI chat API."),
    "lmstudio": ("LMStudioOptions", "LM Studio on this machine, port 1234."),
    "vllm": ("VLLMOptions", "vLLM on this machine, port 8000."),
    "sglang": ("SGLangOptions", "SGLang on this machine, port 30000."),
    "ollama": ("OllamaOptions", "Ollama on this machine, port 11434."),
    "semantic-router": (
        "SemanticRouterOptions",
        "vLLM Semantic Router on this machine, port 8801.",
    ),
}


@hookimpl
def ale_llms() -> Sequence[Component[Any, LLM]]:
    """Register ``openai`` and its presets."""
    return [
        Component(name, f"ale_llm_openai.options:{options}", _build, summary=summary, probe=probe)
        for name, (options, summary) in _PRESETS.items()
    ]
