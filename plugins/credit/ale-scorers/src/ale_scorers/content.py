"""The text and the calls of a chunk."""

from collections.abc import Sequence

from attrs import frozen

from ale.types import Chunk, Observation, Span, ToolCall, Trajectory, Turn


@frozen
class Call:
    """A call and what came of it; one of the two may be missing."""

    call: ToolCall | None
    observation: Observation | None

    @property
    def key(self) -> tuple[str, str]:
        """Equal for calls of one tool with the same arguments."""
        if self.call is not None:
            return self.call.name, self.call.arguments
        return "" if self.observation is None else self.observation.tool, ""

    @property
    def failed(self) -> bool:
        """Whether an error was observed."""
        return self.observation is not None and self.observation.error is not None


@frozen
class Content:
    """The text of a chunk, and its calls with their observations."""

    text: str
    calls: Sequence[Call]

    @property
    def written(self) -> str:
        """The text and the arguments of the calls."""
        arguments = [each.call.arguments for each in self.calls if each.call is not None]
        return "\n".join([self.text, *arguments])

    @property
    def is_empty(self) -> bool:
        """Neither a text nor a call."""
        return not self.text.strip() and not self.calls


def content_of(trajectory: Trajectory, chunk: Chunk) -> Content:
    """The content of one chunk."""
    parts = [(trajectory.turns[span.turn], span) for span in chunk.spans]
    texts = [turn.completion.message.content[slice(*span.text)] for turn, span in parts]
    calls = [call for turn, span in parts for call in _calls(turn, span)]
    return Content("\n".join(text for text in texts if text), calls)


def _calls(turn: Turn, span: Span) -> list[Call]:
    made, seen = turn.completion.message.tool_calls, turn.observations
    return [
        Call(
            made[i] if i < len(made) else None,
            seen[i] if i < len(seen) else None,
        )
        for i in range(*span.calls)
    ]
