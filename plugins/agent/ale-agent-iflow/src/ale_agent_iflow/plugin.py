"""Registers the agent ``iflow``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Agent
    from ale_agent_iflow.options import IflowOptions


def _build(options: IflowOptions, context: BuildContext) -> Agent:
    from ale_agent_iflow.loop import IflowAgent
    from ale_agent_iflow.prompt import system_prompt

    return IflowAgent(options, prompt=system_prompt(options), monotonic=context.monotonic)


@hookimpl
def ale_agents() -> Sequence[Component[IflowOptions, Agent]]:
    """Register ``iflow``."""
    return [
        Component(
            "iflow",
            "ale_agent_iflow.options:IflowOptions",
            _build,
            summary="Tool-calling agent: a shell that lasts, files, limits, compaction.",
            needs=("llm",),
        )
    ]
