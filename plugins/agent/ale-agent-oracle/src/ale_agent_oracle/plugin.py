"""Registers the agents ``oracle``, ``noop`` and ``echo``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Agent
    from ale_agent_oracle.options import OracleOptions


def _build_oracle(options: OracleOptions, context: BuildContext) -> Agent:
    from ale_agent_oracle.oracle import OracleAgent

    return OracleAgent(options, monotonic=context.monotonic)


def _build_noop(options: None, context: BuildContext) -> Agent:
    from ale_agent_oracle.noop import NoopAgent

    return NoopAgent()


def _build_echo(options: None, context: BuildContext) -> Agent:
    from ale_agent_oracle.echo import EchoAgent

    return EchoAgent()


@hookimpl
def ale_agents() -> Sequence[Component[Any, Agent]]:
    """Register ``oracle``, ``noop`` and ``echo``."""
    return [
        Component(
            "oracle",
            "ale_agent_oracle.options:OracleOptions",
            _build_oracle,
            summary="Runs the task's reference solution: a valid task gives it reward 1.",
        ),
        Component(
            "noop",
            None,
            _build_noop,
            summary="Does nothing: a valid task gives it reward 0.",
        ),
        Component(
            "echo",
            None,
            _build_echo,
            summary="For dry runs: repeats the goal and does nothing else.",
        ),
    ]
