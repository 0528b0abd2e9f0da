"""Registers ``openai`` and presets that differ only in their default URL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from attrs import evolve

from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import LLM
    from ale_llm_openai.options import OpenAIOptions


_OWN_KEY = "OPENAI_API_KEY"
"""The variable with the key of OpenAI's own server; never sent to another one unasked."""
_SHOWN = 5
"""Models of a server that are named by `ale doctor`."""


def _build(options: OpenAIOptions, context: BuildContext) -> LLM:
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
    found = Probe.of_package("openai", remedy="pip install 'openai>=1.55.3,<4'")
    return evolve(found, facts={**found.facts, "server": "that of base_url, which is not asked"})


def _probe_at(url: str, server: str) -> Probe:
    """Is the SDK installed, and does a server answer at the default address?"""
    found = Probe.of_package("openai", remedy="pip install 'openai>=1.55.3,<4'")
    if not found.usable:
        return found
    from ale_openai_wire import models_at

    models = models_at(url)
    if models is None:
        reason, remedy = f"nothing answers at {url}", f"start {server}, or set llm.base_url"
        return evolve(found, usable=False, reason=reason, remedy=remedy)
    return evolve(found, reason=f"{url} answers", facts={**found.facts, "models": _listed(models)})


def _listed(models: Collection[str]) -> str:
    shown = [*models][:_SHOWN]
    more = f" and {len(models) - len(shown)} more" if len(models) > len(shown) else ""
    return f"{', '.join(shown)}{more}" or "it lists none"


_PRESETS: Mapping[str, tuple[str, str, str]] = {
    "lmstudio": ("LMStudioOptions", "LM Studio", "http://127.0.0.1:1234/v1"),
    "vllm": ("VLLMOptions", "vLLM", "http://127.0.0.1:8000/v1"),
    "sglang": ("SGLangOptions", "SGLang", "http://127.0.0.1:30000/v1"),
    "ollama": ("OllamaOptions", "Ollama", "http://127.0.0.1:11434/v1"),
    "semantic-router": (
        "SemanticRouterOptions",
        "vLLM Semantic Router",
        "http://127.0.0.1:8801/v1",
    ),
}
"""Options, server and default address of each preset."""


@hookimpl
def ale_llms() -> Sequence[Component[Any, LLM]]:
    """Register ``openai`` and its presets."""
    summary = "Any server with the OpenAI chat API."
    options = "ale_llm_openai.options"
    openai: Component[Any, LLM] = Component(
        "openai", f"{options}:OpenAIOptions", _build, summary=summary, probe=probe
    )
    presets: list[Component[Any, LLM]] = [
        Component(
            name,
            f"{options}:{form}",
            _build,
            summary=f"{server} on this machine, port {urlsplit(url).port}.",
            probe=partial(_probe_at, url, server),
        )
        for name, (form, server, url) in _PRESETS.items()
    ]
    return [openai, *presets]
