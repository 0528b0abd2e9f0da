"""Records as chat messages: whole conversations, and the messages of a chunk."""

from collections.abc import Iterator, Sequence

from ale.types import Chunk, Message, Span, ToolCall, Trajectory, Turn, replace
from ale_rows.rows import ChatCall, ChatFunction, ChatMessage, Messages


def chat(message: Message) -> ChatMessage:
    """A recorded message as a chat message."""
    calls = tuple(
        ChatCall(id=call.id, function=ChatFunction(name=call.name, arguments=call.arguments))
        for call in message.tool_calls
    )
    return ChatMessage(
        role=message.role,
        content=message.content,
        tool_calls=calls or None,
        tool_call_id=message.tool_call_id,
        reasoning_content=message.reasoning,
    )


def record(message: ChatMessage) -> Message:
    """A chat message as a recorded one."""
    calls = tuple(
        ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
        for call in message.tool_calls or ()
    )
    return Message(
        role=message.role,
        content=message.content,
        reasoning=message.reasoning_content,
        tool_calls=calls,
        tool_call_id=message.tool_call_id,
    )


def chats(messages: Sequence[Message]) -> Messages:
    """A conversation as chat messages."""
    return tuple(map(chat, messages))


def by_context(trajectory: Trajectory, chunk: Chunk) -> list[Chunk]:
    """The chunk cut where a new context begins: the model did not see all of the one before."""
    parts: list[list[Span]] = []
    for i, span in enumerate(chunk.spans):
        new_turn = i > 0 and chunk.spans[i - 1].turn != span.turn
        if i == 0 or (new_turn and not trajectory.turns[span.turn].extends):
            parts.append([])
        parts[-1].append(span)
    return [replace(chunk, spans=tuple(spans)) for spans in parts]


def chunk_answer(trajectory: Trajectory, chunk: Chunk) -> Messages:
    """The model's answers and calls in a chunk, as messages.

    A chunk of several turns includes the observations and prompts between them. Observations after
    the last answer are left out, since the model did not write them.

    Args:
        chunk: in one context, see `by_context`.

    Returns:
        Empty where the model wrote nothing in this chunk.
    """
    messages = list(_parts(trajectory, chunk.spans))
    while messages and messages[-1].role != "assistant":
        messages.pop()
    return tuple(messages)


def _parts(trajectory: Trajectory, spans: Sequence[Span]) -> Iterator[ChatMessage]:
    for i, span in enumerate(spans):
        turn = trajectory.turns[span.turn]
        if i > 0 and spans[i - 1].turn != span.turn:
            yield from map(chat, turn.prompt)
        part = part_of(turn, span.text, span.calls)
        if part is not None:
            yield chat(part)
        observed = turn.observations[span.calls[0] : span.calls[1]]
        yield from (chat(observation.as_message()) for observation in observed)


def part_of(turn: Turn, text: tuple[int, int], calls: tuple[int, int]) -> Message | None:
    """The answer of a turn, cut to these characters and calls; None if they are empty."""
    message = turn.completion.message
    content, made = message.content[slice(*text)], message.tool_calls[slice(*calls)]
    if not content and not made:
        return None
    # Reasoning precedes the text, so it belongs to the part that starts the answer.
    reasoning = message.reasoning if text[0] == 0 and calls[0] == 0 else None
    return Message(role="assistant", content=content, reasoning=reasoning, tool_calls=made)


def prefix_of(turn: Turn, span: Span) -> ChatMessage | None:
    """The part of the turn's answer before a span; None where the span starts it."""
    before = part_of(turn, (0, span.text[0]), (0, span.calls[0]))
    return None if before is None else chat(before)
