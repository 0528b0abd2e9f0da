"""Registers the models ``policy`` and ``servers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ale.plugin import Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import LLM

_CPU_BUILD = "pip install torch --index-url https://download.pytorch.org/whl/cpu"


def probe() -> Probe:
    """Is torch installed? Does not import it."""
    remedy = "pip install 'torch>=2.6' 'transformers>=5.22,<6'"
    return Probe.of_package("torch", remedy=f"{remedy} (without CUDA: first {_CPU_BUILD})")


def _probe_servers() -> Probe:
    """As `probe`; no server is asked."""
    found = probe()
    where = "those of urls, registry, nats or start, which are not asked"
    return evolve(found, facts={**found.facts, "servers": where})


@hookimpl
def ale_llms() -> Sequence[Component[Any, LLM]]:
    """Register ``policy`` and ``servers``."""
    return [
        Component(
            "policy",
            "ale_llm_policy.options:PolicyOptions",
            "ale_llm_policy.build:build",
            summary="A transformer in this process, exact to the token; what a trainer trains.",
            probe=probe,
        ),
        Component(
            "servers",
            "ale_llm_policy.options:ServersOptions",
            "ale_llm_policy.build:build_servers",
            summary="Inference servers, exact to the token, to which a trainer gives its weights.",
            probe=_probe_servers,
        ),
    ]
