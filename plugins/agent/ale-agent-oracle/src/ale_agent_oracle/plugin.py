"""Registers the agents ``oracle``, ``noop`` and ``echo``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Agent


@hookimpl
def ale_agents() -> Sequence[Component[Any, Agent]]:
    """Register ``oracle``, ``noop`` and ``echo``."""
    return [
        Component(
            "oracle",
            "ale_agent_oracle.options:OracleOptions",
            "ale_agent_oracle.oracle:OracleAgent",
            summary="Runs the task's reference solution: a valid task gives it reward 1.",
        ),
        Component(
            "noop",
            None,
            "ale_agent_oracle.noop:NoopAgent",
            summary="Does nothing: a valid task gives it reward 0.",
        ),
        Component(
            "echo",
            None,
            "ale_agent_oracle.echo:EchoAgent",
            summary="For dry runs: repeats the goal and does nothing else.",
        ),
    ]
