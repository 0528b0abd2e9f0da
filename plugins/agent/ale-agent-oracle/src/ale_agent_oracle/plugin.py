"""Registers agents without a model, the command ``validate``, and its task source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale.protocols import Agent, TaskSource
    from ale_agent_oracle.validate.badge import ValidatedOptions


@hookimpl
def ale_agents() -> Sequence[Component[Any, Agent]]:
    """Register ``oracle``, ``noop``, ``echo`` and ``attack``."""
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
        Component(
            "attack",
            "ale_agent_oracle.options:AttackOptions",
            "ale_agent_oracle.attack:AttackAgent",
            summary="Tries to get a reward without solving the task: a valid task gives it none.",
        ),
    ]


@hookimpl
def ale_task_sources() -> Sequence[Component[ValidatedOptions, TaskSource]]:
    """Register ``validated``."""
    return [
        Component(
            "validated",
            "ale_agent_oracle.validate.badge:ValidatedOptions",
            "ale_agent_oracle.validate.badge:ValidatedTasks",
            summary="Tasks of another source, all of which have passed `ale validate`.",
        )
    ]


@hookimpl
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Add ``ale validate``."""
    from ale_agent_oracle.validate.commands import validate

    return {"Run": [validate]}
