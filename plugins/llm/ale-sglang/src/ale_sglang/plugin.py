"""Registers the model ``sglang-server``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import LLM
    from ale_sglang.options import SGLangServerOptions


def probe() -> Probe:
    """Is SGLang installed in its environment?"""
    from ale_servers.environment import folder_of, is_made
    from ale_sglang.recipes import RECIPE

    if is_made(RECIPE):
        return Probe(usable=True, reason=f"installed in {folder_of(RECIPE)}")
    remedy = "ale engines install sglang"
    return Probe(usable=False, reason="SGLang is not installed", remedy=remedy)


@hookimpl
def ale_llms() -> Sequence[Component[SGLangServerOptions, LLM]]:
    """Register ``sglang-server``."""
    return [
        Component(
            "sglang-server",
            "ale_sglang.options:SGLangServerOptions",
            "ale_sglang.server:build",
            summary="SGLang, as a server that samples for training; never run against a real "
            "SGLang.",
            probe=probe,
        )
    ]
