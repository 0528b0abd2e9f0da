"""Turns as chunks, and their tool calls, also those that an agent reads out of the text."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ale.types import Chunk, Observation, Span, Turn, call_count, whole_turn


class Call(NamedTuple):
    """A tool call and its result."""

    name: str
    arguments: str | None
    """As the model wrote them; None where the agent read the call out of the text."""
    observation: Observation | None


def turn_chunks(turns: Sequence[Turn]) -> tuple[Chunk, ...]:
    """A chunk per turn, for episodes that have not been cut."""
    return tuple(
        Chunk(index=i, kind="turn", spans=(whole_turn(i, turn),)) for i, turn in enumerate(turns)
    )


def calls(turn: Turn, span: Span) -> Iterator[Call]:
    """The calls of one chunk in one turn."""
    written = turn.completion.message.tool_calls
    for i in range(span.calls[0], min(span.calls[1], call_count(turn))):
        observation = turn.observations[i] if i < len(turn.observations) else None
        if i < len(written):
            yield Call(written[i].name, written[i].arguments, observation)
        elif observation is not None:
            yield Call(observation.tool, None, observation)
