"""Registers the chunkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import BuildContext, Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Chunker
    from ale_chunkers.options import PhaseOptions


def _micro_step(options: None, context: BuildContext) -> Chunker:
    from ale_chunkers.micro_steps import MICRO_STEP
    from ale_chunkers.parts import TagChunker

    return TagChunker(MICRO_STEP)


def _step_tags(options: None, context: BuildContext) -> Chunker:
    from ale_chunkers.parts import TagChunker

    return TagChunker(("step", "answer"))


def _phase(options: PhaseOptions, context: BuildContext) -> Chunker:
    from ale_chunkers.turns import PhaseChunker

    return PhaseChunker({tool: tool for tool in options.tools}, rest="unfinished")


@hookimpl
def ale_chunkers() -> Sequence[Component[Any, Chunker]]:
    """Register the chunkers."""
    return [
        Component(
            "interaction",
            "ale_chunkers.options:InteractionOptions",
            "ale_chunkers.turns:InteractionChunker",
            summary="One chunk from each interaction with the environment to the next (the IPA "
            "paper's).",
        ),
        Component(
            "message",
            None,
            "ale_chunkers.turns:MessageChunker",
            summary="One chunk per assistant message.",
        ),
        Component(
            "tool-call",
            None,
            "ale_chunkers.parts:ToolCallChunker",
            summary="One chunk per tool call.",
        ),
        Component(
            "micro-step",
            None,
            _micro_step,
            summary="Assistant messages, split at <micro-step> tags.",
        ),
        Component(
            "step-tags",
            None,
            _step_tags,
            summary="Assistant messages, split at <step> and <answer> tags.",
        ),
        Component(
            "attempt",
            "ale_chunkers.options:AttemptOptions",
            "ale_chunkers.turns:AttemptChunker",
            summary="One chunk per attempt at the task, up to what its tests said.",
        ),
        Component(
            "phase",
            "ale_chunkers.options:PhaseOptions",
            _phase,
            summary="One chunk per phase: a plan, a patch, a test, a repair.",
        ),
        Component(
            "ale-lite",
            None,
            "ale_chunkers.parts:AleLiteChunker",
            summary="Messages, micro-steps and tool calls, each a chunk.",
        ),
        Component(
            "token",
            None,
            "ale_chunkers.tokens:TokenChunker",
            summary="One chunk per generated token.",
        ),
        Component(
            "trajectory",
            None,
            "ale_chunkers.turns:TrajectoryChunker",
            summary="One chunk for the whole trajectory.",
        ),
    ]
