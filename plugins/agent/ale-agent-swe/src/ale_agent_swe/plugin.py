"""Registers the agent ``plan-patch-test``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Agent
    from ale_agent_swe.options import PlanPatchTestOptions


def _build(options: PlanPatchTestOptions, context: BuildContext) -> Agent:
    from ale_agent_swe.agent import PlanPatchTestAgent

    return PlanPatchTestAgent(options, monotonic=context.monotonic)


@hookimpl
def ale_agents() -> Sequence[Component[PlanPatchTestOptions, Agent]]:
    """Register ``plan-patch-test``."""
    return [
        Component(
            "plan-patch-test",
            "ale_agent_swe.options:PlanPatchTestOptions",
            _build,
            summary="Plans, patches a repository, tests and repairs, with or without tools.",
            needs=("llm",),
        )
    ]
