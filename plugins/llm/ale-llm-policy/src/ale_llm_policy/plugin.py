"""Registers the models ``policy`` and ``servers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import LLM


def probe() -> Probe:
    """Is torch installed? Does not import it."""
    remedy = "pip install -e '.[train]' in a clone; else pip install ale-llm-policy"
    return Probe.of_package("torch", remedy=remedy)


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
            probe=probe,
        ),
    ]
