"""Registers the agents ``oracle`` and ``noop``."""

from collections.abc import Sequence
from typing import Any

from attrs import field, frozen, validators

from ale.plugin import BuildContext, Component, doc, ge, gt, hookimpl
from ale.protocols import Agent

# mypy takes a field's type from its default, and would have None refused.
_above_0: Any = validators.optional(gt(0))


@frozen(kw_only=True)
class OracleOptions:
    """Runs a task's reference solution, one command after the other."""

    tool_timeout_s: float | None = field(
        default=300.0, validator=_above_0, metadata=doc("Seconds for one command.")
    )
    time_limit_s: float | None = field(
        default=600.0, validator=_above_0, metadata=doc("Wall-clock seconds for the solution.")
    )
    max_output_bytes: int = field(
        default=16384,
        validator=ge(0),
        metadata=doc("Recorded of a command's stdout and stderr each; head and tail."),
    )


def _build_oracle(options: OracleOptions, context: BuildContext) -> Agent:
    from ale_agent_oracle.oracle import OracleAgent

    return OracleAgent(options, monotonic=context.monotonic)


def _build_noop(options: None, context: BuildContext) -> Agent:
    from ale_agent_oracle.noop import NoopAgent

    return NoopAgent()


@hookimpl
def ale_agents() -> Sequence[Component[Any, Agent]]:
    """Register ``oracle`` and ``noop``."""
    return [
        Component(
            "oracle",
            OracleOptions,
            _build_oracle,
            summary="Runs the task's reference solution: a sound task gives it reward 1.",
        ),
        Component(
            "noop",
            None,
            _build_noop,
            summary="Does nothing: a sound task gives it reward 0.",
        ),
    ]
