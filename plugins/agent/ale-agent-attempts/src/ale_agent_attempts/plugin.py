"""Registers the agents ``code-attempts``, ``single-shot`` and ``steps``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Agent


@hookimpl
def ale_agents() -> Sequence[Component[Any, Agent]]:
    """Register ``code-attempts``, ``single-shot`` and ``steps``."""
    return [
        Component(
            "code-attempts",
            "ale_agent_attempts.options:AttemptsOptions",
            "ale_agent_attempts.attempts:code_attempts",
            summary="Asks for code, runs its visible tests, shows the errors, asks again.",
            needs=("llm",),
        ),
        Component(
            "single-shot",
            "ale_agent_attempts.options:SingleShotOptions",
            "ale_agent_attempts.single_shot:single_shot",
            summary="Asks once, without tools or feedback: for benchmarks.",
            needs=("llm",),
        ),
        Component(
            "steps",
            "ale_agent_attempts.options:StepsOptions",
            "ale_agent_attempts.steps:steps",
            summary="Thinks in <step> tags and answers in an <answer> tag.",
            needs=("llm",),
        ),
    ]
