"""An answer, as JSON or as an object, into a `Completion`.

The structures name what is used and ignore the rest. They are lenient where servers differ (null
for a missing list, arguments as an object) and strict otherwise: what can't be read is an error,
never a guess.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import msgspec

from ale.types import Completion, FinishReason, Message, TokenTrace, ToolCall, Usage

FUNCTION_CALL = "function_call"
"""The id of a call in the field of this name, which has none."""


class WireFunction(msgspec.Struct):
    """The function part of a call. Arguments stay as written, text or object."""

    name: str
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class WireCall(msgspec.Struct):
    """One tool call."""

    function: WireFunction
    id: str | None = None


class WirePart(msgspec.Struct):
    """One part of a content that is a list."""

    type: str
    text: str = ""


class WireMessage(msgspec.Struct):
    """The assistant's message. vLLM calls the reasoning ``reasoning``, most others
    ``reasoning_content``.
    """

    content: str | list[WirePart] | None = None
    refusal: str | None = None
    """In place of the content, from a model that refuses."""
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[WireCall] | None = None
    function_call: WireFunction | None = None
    """One call, as servers sent it before there were several."""


class WireLogprob(msgspec.Struct):
    """The log-probability of one token."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class WireLogprobs(msgspec.Struct):
    """The log-probabilities of an answer."""

    content: list[WireLogprob] | None = None


class WireChoice(msgspec.Struct):
    """The one choice that is asked for."""

    message: WireMessage
    finish_reason: str | None = None
    logprobs: WireLogprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    """As SGLang sends them."""


class WireUsage(msgspec.Struct):
    """Token counts."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Answer(msgspec.Struct):
    """A chat completion."""

    choices: list[WireChoice]
    model: str | None = None
    usage: WireUsage | None = None
    prompt_token_ids: list[int] | None = None
    """As vLLM sends them."""


_decoder = msgspec.json.Decoder(Answer)


def read_answer(data: bytes) -> Answer:
    """An answer from its JSON.

    Raises:
        ValueError: it is no JSON, or no chat completion.
    """
    try:
        answer = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(f"the answer can't be read: {error}") from error
    if not answer.choices:
        raise ValueError("the answer has no choices")
    return answer


def completion(answer: Answer, *, turn: int, model: str, trace: bool = False) -> Completion:
    """The answer's first choice as a record.

    Args:
        turn: names the calls of a server that gives them no ids: ``call_<turn>_<index>``.
        model: recorded where the answer does not say which model it is from.
        trace: record the tokens, if all that is needed is there.
    """
    choice = answer.choices[0]
    calls = choice.message.tool_calls or []
    if not calls and choice.message.function_call is not None:
        calls = [WireCall(id=FUNCTION_CALL, function=choice.message.function_call)]
    message = Message(
        role="assistant",
        content=_text(choice.message.content) or choice.message.refusal or "",
        reasoning=choice.message.reasoning_content or choice.message.reasoning or None,
        tool_calls=tuple(
            ToolCall(
                id=call.id or f"call_{turn}_{index}",
                name=call.function.name,
                arguments=arguments_text(call.function.arguments),
            )
            for index, call in enumerate(calls)
        ),
    )
    usage = answer.usage or WireUsage()
    return Completion(
        message=message,
        finish_reason=_finish_reason(choice),
        usage=Usage(
            prompt_tokens=usage.prompt_tokens or 0,
            completion_tokens=usage.completion_tokens or 0,
        ),
        model=answer.model or model,
        tokens=token_trace(answer, message.content) if trace else None,
    )


def _text(content: str | list[WirePart] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content if part.type == "text")


def arguments_text(raw: msgspec.Raw) -> str:
    """A call's arguments as text, whether they were sent as a text or as an object."""
    data = bytes(raw)
    if data == b"null":
        return ""
    if data.startswith(b'"'):
        return msgspec.json.decode(data, type=str)
    return data.decode()


def _finish_reason(choice: WireChoice) -> FinishReason:
    """The server's own, which is ``stop`` for a refusal too."""
    refuses = choice.message.refusal and not choice.message.content
    return "content_filter" if refuses else finish_reason(choice.finish_reason)


def finish_reason(wire: str | None) -> FinishReason:
    """The reason as `Completion` names it; ``other`` where there is no name for it."""
    if wire == "function_call":
        return "tool_calls"
    for known in get_args(FinishReason):
        if wire == known:
            return known  # type: ignore[no-any-return]
    return "other"


def token_trace(answer: Answer, content: str) -> TokenTrace | None:
    """The exact tokens, or None unless the server gave all of them.

    Needed are the ids of the prompt and of the answer, and one log-probability for each of the
    latter. Where a server names the tokens in its log-probabilities by id (vLLM with
    ``return_tokens_as_token_ids``), these ids must be the same. Nothing is re-tokenised.

    `policy_versions` are 0: a server's weights are taken to be fixed.
    """
    choice = answer.choices[0]
    prompt_ids = answer.prompt_token_ids or choice.prompt_token_ids
    entries = choice.logprobs.content if choice.logprobs is not None else None
    if not prompt_ids or choice.token_ids is None or entries is None:
        return None
    if len(entries) != len(choice.token_ids) or not _same_ids(entries, choice.token_ids):
        return None
    return TokenTrace(
        prompt_ids=tuple(prompt_ids),
        output_ids=tuple(choice.token_ids),
        logprobs=tuple(entry.logprob for entry in entries),
        policy_versions=(0,) * len(entries),
        text_offsets=text_offsets(entries, content),
    )


def _same_ids(entries: Sequence[WireLogprob], ids: Sequence[int]) -> bool:
    named = [re.fullmatch(r"token_id:(\d+)", entry.token) for entry in entries]
    return all(
        match is None or int(match[1]) == token for match, token in zip(named, ids, strict=True)
    )


def text_offsets(entries: Sequence[WireLogprob], content: str) -> tuple[int, ...] | None:
    """Where in the content each token starts; its length for those after it (calls, end marks).

    A token that starts within a character has that character's index. None where the tokens'
    bytes do not begin with the content, for then the server has changed the text.
    """
    if any(entry.bytes is None for entry in entries):
        return None
    pieces = [bytes(entry.bytes or ()) for entry in entries]
    if not b"".join(pieces).startswith(content.encode()):
        return None
    offsets, started = [], 0
    for piece in pieces:
        within = bool(piece) and piece[0] & 0xC0 == 0x80
        offsets.append(min(started - within, len(content)))
        started += sum(byte & 0xC0 != 0x80 for byte in piece)
    return tuple(offsets)


def from_mapping(data: Mapping[str, Any]) -> Answer:
    """An answer from an SDK's object, as a mapping.

    Raises:
        ValueError: it is no chat completion.
    """
    return read_answer(msgspec.json.encode(data))
