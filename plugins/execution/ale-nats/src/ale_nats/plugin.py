"""Registers the executor and the observer ``nats``, ``ale worker`` and ``ale events``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    import click

    from ale.protocols import Executor
    from ale_nats.options import EventOptions, NatsOptions


def _executor(options: NatsOptions, context: BuildContext) -> Executor:
    from ale_nats.executor import NatsExecutor

    return NatsExecutor(options, context.environ)


def _observer(options: EventOptions, context: BuildContext) -> object:
    from ale_nats.events import EventPublisher

    return EventPublisher(options, context.environ)


@hookimpl
def ale_executors() -> Sequence[Component[Any, Executor]]:
    """Register the executor ``nats``."""
    summary = "Runs episodes on workers (ale worker) over NATS JetStream."
    return [Component("nats", "ale_nats.options:NatsOptions", _executor, summary=summary)]


@hookimpl
def ale_observers() -> Sequence[Component[Any, object]]:
    """Register the observer ``nats``."""
    summary = "Publishes every event of a run to a NATS server; ale events tail shows them."
    return [Component("nats", "ale_nats.options:EventOptions", _observer, summary=summary)]


@hookimpl
def ale_commands() -> Sequence[click.Command]:
    """Register ``ale worker`` and ``ale events``."""
    from ale_nats.commands import events, worker

    return [worker, events]
