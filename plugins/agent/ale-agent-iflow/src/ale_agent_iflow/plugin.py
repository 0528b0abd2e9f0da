"""What this package offers: the agent ``iflow``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen, validators

from ale.plugin import BuildContext, Component, doc, ge, gt, hookimpl, le
from ale.protocols import Agent

# mypy takes a field's type from its default, and would have None refused.
_at_least_1: Any = validators.optional(ge(1))
_above_0: Any = validators.optional(gt(0))
_at_least_256: Any = validators.optional(ge(256))


@frozen(kw_only=True)
class IflowOptions:
    """A model that acts by calling tools: shell, read_file, write_file, edit_file, finish."""

    max_steps: int | None = field(
        default=40, validator=_at_least_1, metadata=doc("Tool calls in an episode.")
    )
    max_turns: int | None = field(
        default=80, validator=_at_least_1, metadata=doc("Completions in an episode.")
    )
    tool_timeout_s: float | None = field(
        default=60.0, validator=_above_0, metadata=doc("Seconds for one tool call.")
    )
    time_limit_s: float | None = field(
        default=600.0,
        validator=_above_0,
        metadata=doc("Wall-clock seconds for an episode, counted while a tool or the model works."),
    )
    context_max_tokens: int | None = field(
        default=8000,
        validator=_at_least_256,
        metadata=doc("Tokens in a conversation; a longer one is folded before the model is asked."),
    )
    tool_format: Literal["auto", "native", "text"] = field(
        default="auto",
        metadata=doc("Tool calls of the provider, or fenced text; auto asks the model component."),
    )
    max_output_bytes: int = field(
        default=8192,
        validator=ge(256),
        metadata=doc("Of a tool's output that the model sees; more is cut in the middle."),
    )
    max_nudges: int = field(
        default=2,
        validator=ge(0),
        metadata=doc("Answers in a row without a tool call that are pointed out before giving up."),
    )
    fold_to: float = field(
        default=0.6,
        validator=[gt(0), le(1)],
        metadata=doc("Share of context_max_tokens that folding aims at."),
    )
    keep_turns: int = field(
        default=2,
        validator=ge(1),
        metadata=doc("Latest turns that folding leaves whole as long as the rest suffices."),
    )
    system_prompt: str | None = field(
        default=None,
        metadata=doc("Replaces the system prompt; {workdir} stands for the working directory."),
    )
    system_prompt_file: Path | None = field(
        default=None, metadata=doc("The same, read from a UTF-8 file.")
    )


def _build(options: IflowOptions, context: BuildContext) -> Agent:
    from ale_agent_iflow.loop import IflowAgent
    from ale_agent_iflow.prompt import system_prompt

    return IflowAgent(options, prompt=system_prompt(options), monotonic=context.monotonic)


@hookimpl
def ale_agents() -> Sequence[Component[IflowOptions, Agent]]:
    """Register ``iflow``."""
    return [
        Component(
            "iflow",
            IflowOptions,
            _build,
            summary="Tool-calling agent: a shell that lasts, files, limits, compaction.",
            needs=("llm",),
        )
    ]
