"""Registers the executor and the observer ``nats``, ``ale workers run`` and ``events``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, hookimpl
from ale_nats.packages import probe

if TYPE_CHECKING:
    import click

    from ale.protocols import Executor
    from ale_nats.options import EventOptions, NatsOptions


def _executor(options: NatsOptions, context: BuildContext) -> Executor:
    probe().check()
    from ale_nats.executor import NatsExecutor

    return NatsExecutor(options, context.environ)


def _observer(options: EventOptions, context: BuildContext) -> object:
    probe().check()
    from ale_nats.events import EventPublisher

    return EventPublisher(options, context.environ)


@hookimpl
def ale_executors() -> Sequence[Component[Any, Executor]]:
    """Register the executor ``nats``."""
    summary = "Runs episodes on workers (ale workers run) over NATS JetStream."
    options = "ale_nats.options:NatsOptions"
    return [Component("nats", options, _executor, summary=summary, probe=probe)]


@hookimpl
def ale_observers() -> Sequence[Component[Any, object]]:
    """Register the observer ``nats``."""
    summary = "Publishes every event of a run to a NATS server; ale workers events shows them."
    options = "ale_nats.options:EventOptions"
    return [Component("nats", options, _observer, summary=summary, probe=probe)]


@hookimpl
def ale_commands() -> Mapping[str, Sequence[click.Command]]:
    """Register ``ale workers run`` and ``ale workers events``."""
    from ale_nats.commands import workers

    return {"Models and machines": [workers]}
