"""Registers the agents ``code-attempts``, ``single-shot`` and ``steps``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Agent
    from ale_agent_attempts.options import AttemptsOptions, SingleShotOptions, StepsOptions


def _build_attempts(options: AttemptsOptions, context: BuildContext) -> Agent:
    from ale.types import Limits
    from ale_agent_attempts.attempts import AttemptsEpisode
    from ale_agent_attempts.single_shot import TextAgent

    limits = Limits(
        max_turns=options.max_attempts,
        tool_timeout_s=options.tool_timeout_s,
        time_limit_s=options.time_limit_s,
        context_max_tokens=options.context_max_tokens,
    )
    return TextAgent(limits, lambda given: AttemptsEpisode(options, given, context.monotonic))


def _build_single_shot(options: SingleShotOptions, context: BuildContext) -> Agent:
    from ale.types import Limits
    from ale_agent_attempts.single_shot import SingleShotEpisode, TextAgent

    limits = Limits(max_turns=1, time_limit_s=options.time_limit_s)
    return TextAgent(limits, lambda given: SingleShotEpisode(options, given, context.monotonic))


def _build_steps(options: StepsOptions, context: BuildContext) -> Agent:
    from ale.types import Limits
    from ale_agent_attempts.single_shot import TextAgent
    from ale_agent_attempts.steps import StepsEpisode

    limits = Limits(max_turns=options.max_turns, time_limit_s=options.time_limit_s)
    return TextAgent(limits, lambda given: StepsEpisode(options, given, context.monotonic))


@hookimpl
def ale_agents() -> Sequence[Component[Any, Agent]]:
    """Register ``code-attempts``, ``single-shot`` and ``steps``."""
    return [
        Component(
            "code-attempts",
            "ale_agent_attempts.options:AttemptsOptions",
            _build_attempts,
            summary="Asks for code, runs its visible tests, shows the errors, asks again.",
            needs=("llm",),
        ),
        Component(
            "single-shot",
            "ale_agent_attempts.options:SingleShotOptions",
            _build_single_shot,
            summary="Asks once, without tools or feedback: for benchmarks.",
            needs=("llm",),
        ),
        Component(
            "steps",
            "ale_agent_attempts.options:StepsOptions",
            _build_steps,
            summary="Thinks in <step> tags and answers in an <answer> tag.",
            needs=("llm",),
        ),
    ]
