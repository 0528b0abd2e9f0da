"""Registers the model ``vllm-server``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import LLM
    from ale_vllm.options import VLLMServerOptions


def probe() -> Probe:
    """Is vLLM installed in its environment?"""
    from ale_servers.environment import folder_of, is_made
    from ale_vllm.recipes import RECIPES, build_here

    recipe = RECIPES[build_here()]
    if is_made(recipe):
        return Probe(usable=True, reason=f"installed in {folder_of(recipe)}")
    remedy = "ale engines install vllm"
    return Probe(usable=False, reason="vLLM is not installed", remedy=remedy)


@hookimpl
def ale_llms() -> Sequence[Component[VLLMServerOptions, LLM]]:
    """Register ``vllm-server``."""
    return [
        Component(
            "vllm-server",
            "ale_vllm.options:VLLMServerOptions",
            "ale_vllm.server:build",
            summary="vLLM, started in an environment of its own, that samples for training.",
            probe=probe,
        )
    ]
