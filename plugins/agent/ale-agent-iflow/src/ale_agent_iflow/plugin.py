"""Registers the agent ``iflow``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Agent


@hookimpl
def ale_agents() -> Sequence[Component[Any, Agent]]:
    """Register ``iflow``."""
    return [
        Component(
            "iflow",
            "ale_agent_iflow.options:IflowOptions",
            "ale_agent_iflow.loop:IflowAgent",
            summary="Tool-calling agent: a shell that lasts, files, limits, compaction.",
            needs=("llm",),
        )
    ]
