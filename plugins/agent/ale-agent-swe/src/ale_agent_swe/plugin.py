"""Registers the agent ``plan-patch-test``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Agent


@hookimpl
def ale_agents() -> Sequence[Component[Any, Agent]]:
    """Register ``plan-patch-test``."""
    return [
        Component(
            "plan-patch-test",
            "ale_agent_swe.options:PlanPatchTestOptions",
            "ale_agent_swe.agent:PlanPatchTestAgent",
            summary="Plans, patches a repository, tests and repairs, with or without tools.",
            needs=("llm",),
        )
    ]
