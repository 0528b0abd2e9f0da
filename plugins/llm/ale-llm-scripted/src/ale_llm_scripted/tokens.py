"""The tokens of a scripted model: one per byte, and one per role and end of message.

This is not a model's tokenizer and not meant to be. It is small and exact, and has the property
that matters in tests: the prompt of a turn begins with the prompt and the output of the turn
before, as long as messages were only added to the conversation.
"""

import hashlib

from ale.types import CompletionRequest, Message, TokenTrace

ROLES = {"system": 256, "user": 257, "assistant": 258, "tool": 259}
CALL = 260
"""Starts a tool call, and separates its name from its arguments."""
REASONING = 261
"""Starts and ends the reasoning before the content."""
END = 262
"""Ends a message."""


def prompt_ids(messages: tuple[Message, ...]) -> tuple[int, ...]:
    """The conversation, and the role token that asks for an answer."""
    ids: list[int] = []
    for message in messages:
        ids += [ROLES[message.role], *body_ids(message)]
    return (*ids, ROLES["assistant"])


def body_ids(message: Message) -> tuple[int, ...]:
    """A message without its role token: reasoning, content, calls, end."""
    ids: list[int] = []
    if message.reasoning is not None:
        ids += [REASONING, *message.reasoning.encode(), REASONING]
    ids += message.content.encode()
    for call in message.tool_calls:
        ids += [CALL, *call.name.encode(), CALL, *call.arguments.encode()]
    return (*ids, END)


def count_prompt(messages: tuple[Message, ...]) -> int:
    """The number of ids that `prompt_ids` returns, without making them."""
    return sum(1 + count_body(message) for message in messages) + 1


def count_body(message: Message) -> int:
    """The number of ids that `body_ids` returns, without making them."""
    n = len(message.content.encode()) + 1
    if message.reasoning is not None:
        n += len(message.reasoning.encode()) + 2
    for call in message.tool_calls:
        n += len(call.name.encode()) + len(call.arguments.encode()) + 2
    return n


def trace(request: CompletionRequest, message: Message) -> TokenTrace:
    """The tokens of an answer, all of policy version 0.

    Log-probabilities are drawn uniformly from (-4, 0], in steps of 1/16384, from a hash of the
    conversation's seed, task, rollout and turn.
    """
    output = body_ids(message)
    return TokenTrace(
        prompt_ids=prompt_ids(request.messages),
        output_ids=output,
        logprobs=_logprobs(request, len(output)),
        policy_versions=(0,) * len(output),
        text_offsets=_text_offsets(message, len(output)),
    )


def _logprobs(request: CompletionRequest, n: int) -> tuple[float, ...]:
    who = request.conversation
    key = f"{who.seed}\0{who.task_id}\0{who.rollout}\0{request.turn}"
    noise = hashlib.shake_128(key.encode()).digest(2 * n)
    return tuple(-int.from_bytes(noise[2 * i : 2 * i + 2]) / 16384 for i in range(n))


def _text_offsets(message: Message, n: int) -> tuple[int, ...]:
    """The character that each token belongs to; reasoning counts as before, calls as after all."""
    before = 0 if message.reasoning is None else len(message.reasoning.encode()) + 2
    within = [i for i, char in enumerate(message.content) for _ in char.encode()]
    after = n - before - len(within)
    return (*[0] * before, *within, *[len(message.content)] * after)
