"""Conversations and texts as token ids, with a mask of the tokens to train on.

Each part is tokenised separately and the ids are joined, so an answer's first token is one that a
sampler could generate, whatever precedes it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

Messages = Sequence[Mapping[str, Any]]
Ids = list[int]


class UnrenderableError(Exception):
    """This chat template can't render the conversation turn by turn; the message says why."""


@frozen
class Tokens:
    """T tokens of a context, T at least 2.

    Attributes:
        ids: the tokens, shape (T,).
        mask: shape (T,), 1 for tokens of the model that are trained on, else 0.
    """

    ids: Ids
    mask: list[int]


@frozen
class Pair:
    """Two continuations, of one prompt or of two."""

    chosen: Tokens
    rejected: Tokens

    @property
    def longest(self) -> int:
        """Tokens of the longer one."""
        return max(len(self.chosen.ids), len(self.rejected.ids))


def of_text(tokenizer: Any, prompt: str, answer: str) -> Tokens:
    """A prompt with the tokenizer's special tokens, and an answer with end-of-text.

    Raises:
        UnrenderableError: the prompt has no token, or a text is no valid Unicode.
    """
    before = _ids(tokenizer, prompt, special=True)
    if not before:
        raise UnrenderableError("the prompt has no token from which the answer's first one follows")
    answered = _ids(tokenizer, answer)
    if not answered or answered[-1] != tokenizer.eos_token_id:
        answered.append(tokenizer.eos_token_id)
    return Tokens([*before, *answered], [0] * len(before) + [1] * len(answered))


def of_messages(
    tokenizer: Any, prompt: Messages, answer: Messages, tools: Sequence[Any] | None = None
) -> Tokens:
    """A conversation under the tokenizer's chat template.

    The assistant's tokens in `answer` are trained on, up to the end-of-turn token; messages of
    tools and users are context.

    Raises:
        UnrenderableError: the template fails, or does not extend its own prefix.
    """
    messages = [_plain(each) for each in (*prompt, *answer)]
    ids: Ids = []
    mask: list[int] = []
    so_far = ""
    for i in range(len(prompt), len(messages)):
        if messages[i].get("role") != "assistant":
            continue
        asked = _render(tokenizer, messages[:i], tools, prompt=True)
        through = _render(tokenizer, messages[: i + 1], tools, prompt=False)
        # Some templates open a block in the prompt that the full conversation renders differently.
        asked = asked[: _shared(asked, through)]
        if not asked.startswith(so_far) or len(asked) == len(so_far):
            raise UnrenderableError(
                "the chat template changes earlier messages when the conversation is extended"
            )
        context = _ids(tokenizer, asked[len(so_far) :])
        answered = _ids(tokenizer, through[len(asked) :])
        learnt = _through_end(answered, tokenizer.eos_token_id)
        ids += [*context, *answered]
        mask += [0] * len(context) + [1] * learnt + [0] * (len(answered) - learnt)
        so_far = through
    if not any(mask):
        raise UnrenderableError("the answer has no message of the assistant")
    return Tokens(ids, mask)


def of_prompt(tokenizer: Any, prompt: Messages, tools: Sequence[Any] | None = None) -> Ids:
    """A conversation under the tokenizer's chat template, up to where the answer begins.

    Raises:
        UnrenderableError: the template fails.
    """
    asked = _render(tokenizer, [_plain(each) for each in prompt], tools, prompt=True)
    return _ids(tokenizer, asked)


def tools_of(row: Mapping[str, Any]) -> Sequence[Any] | None:
    """Tool specifications; TRL keeps them as JSON text, because Arrow can't hold every schema.

    Raises:
        UnrenderableError: the text is no JSON.
    """
    tools = row.get("tools")
    try:
        read = json.loads(tools) if isinstance(tools, str) and tools else tools
    except (ValueError, RecursionError) as error:
        raise UnrenderableError(f"'tools' is no JSON: {error}") from error
    return read or None


def _shared(one: str, other: str) -> int:
    """Length of the common prefix, in characters."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _through_end(answered: Ids, end: int) -> int:
    """The tokens up to the last one that ends a turn; a template may add a line break after it."""
    return len(answered) - answered[::-1].index(end) if end in answered else len(answered)


def _ids(tokenizer: Any, text: str, *, special: bool = False) -> Ids:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnrenderableError(f"a text is no valid Unicode: {error}") from error
    return list(tokenizer(text, add_special_tokens=special)["input_ids"])


def _render(
    tokenizer: Any, messages: Messages, tools: Sequence[Any] | None, *, prompt: bool
) -> str:
    try:
        text = tokenizer.apply_chat_template(
            list(messages), tools=tools, add_generation_prompt=prompt, tokenize=False
        )
    except Exception as error:  # Jinja's, and whatever a template raises
        raise UnrenderableError(f"the chat template fails: {error}") from error
    return str(text)


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message with the arguments of its calls as objects, as templates expect."""
    calls = message.get("tool_calls")
    plain = {key: value for key, value in message.items() if value is not None}
    plain.setdefault("content", "")
    if calls:
        if not isinstance(calls, list) or not all(map(_is_call, calls)):
            raise UnrenderableError("tool_calls is no list of calls, each with a function")
        plain["tool_calls"] = [_call(call) for call in calls]
    return plain


def _is_call(call: Any) -> bool:
    return isinstance(call, Mapping) and isinstance(call.get("function", call), Mapping)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function", call))
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            read = json.loads(arguments, strict=False)
        except (ValueError, RecursionError):
            read = arguments
        function["arguments"] = read if isinstance(read, dict) else arguments
    return {"type": "function", **dict(call), "function": function}
