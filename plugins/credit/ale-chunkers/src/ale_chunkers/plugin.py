"""Registers the chunkers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Chunker


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
            "ale_chunkers.parts:micro_step_chunker",
            summary="Assistant messages, split at <micro-step> tags.",
        ),
        Component(
            "step-tags",
            None,
            "ale_chunkers.parts:step_tag_chunker",
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
            "ale_chunkers.turns:phase_chunker",
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
