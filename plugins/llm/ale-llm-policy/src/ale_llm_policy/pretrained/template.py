"""Chat templates applied turn by turn, exact to the token.

The first prompt is rendered by the tokenizer's chat template. Every later one is the
existing ids, followed by the ids of the added messages; nothing is rendered or tokenised twice.
That is the same conversation only if the template extends its own prefix, which is checked when the
policy is built.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from attrs import frozen

from ale.types import Message, ToolCall, ToolSpec
from ale_llm_policy.pretrained.calls import FORMATS, Find, read
from ale_llm_policy.pretrained.errors import input_error
from ale_llm_policy.pretrained.token_bytes import TokenBytes

Ids = tuple[int, ...]

_PATH = "llm.chat_template"
_HINT = "use a template that extends its own output: chat_template: chatml, or a file of your own"
_ARGUMENTS = '{"a": 1}'
_TOOL = ToolSpec(
    name="probe",
    description="A probe.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}},
)


@frozen
class Answer:
    """Sampled ids as a message."""

    message: Message
    text_offsets: Ids | None
    """As in `TokenTrace`: where in the message's content each id starts."""


class ChatTemplate:
    """A tokenizer's chat template, applied turn by turn.

    Args:
        tokenizer: a fast tokenizer of transformers.
        source: Jinja text to use in the place of the tokenizer's own.
        calls: how the model writes tool calls, a name of `FORMATS`.

    Raises:
        InputError: there is no template, or it does not extend its own prefix.
    """

    def __init__(self, tokenizer: Any, *, source: str | None = None, calls: str = "hermes") -> None:
        self._tokenizer = tokenizer
        self._source = source
        self._find: Find = FORMATS[calls]
        self.token_bytes = TokenBytes(tokenizer)
        if source is None and not tokenizer.chat_template:
            raise input_error("the tokenizer has no chat template", path=_PATH, hint=_HINT)
        self._tail = self._probe()
        self.end_id: int = self._tail[0]
        """The token that ends a turn; the model writes it, and it is trained."""
        self._after_end = self._tail[1:]
        self._added = lru_cache(maxsize=256)(self._render_added)

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """The ids of a new conversation, up to where the answer begins."""
        return self._ids(self._render(messages, tools, prompt=True))

    def extend(self, ids: Ids, added: Sequence[Message]) -> Ids:
        """The next prompt: `ids` (prompt and answer so far) and the added messages.

        An answer that was cut off before its end-of-turn token gets it here, as part of the
        prompt: it was not sampled.
        """
        end = () if ids and ids[-1] == self.end_id else (self.end_id,)
        return (*ids, *end, *self._added(tuple(added)))

    def answer(self, message: Message) -> Ids:
        """The ids of `message` as the model would generate it, end-of-turn token included."""
        base = (Message(role="user", content="u"),)
        before = self._render(base, (), prompt=True)
        whole = self._render((*base, message), (), prompt=False)
        ids = self._ids(_after(whole, before, "the prompt that asks for the answer"))
        if self.end_id not in ids:
            raise input_error("an answer is rendered without its end-of-turn token", path=_PATH)
        last = len(ids) - 1 - ids[::-1].index(self.end_id)
        return ids[: last + 1]

    def read(
        self, ids: Sequence[int], *, turn: int, tools: bool, limit: int | None = None
    ) -> Answer:
        """Parse sampled ids as a message.

        Args:
            ids: as sampled; a last end-of-turn token is not text.
            turn: for the ids of the calls.
            tools: does the request have tools? If not, nothing is parsed as a call.
            limit: characters of the text that count (a stop string follows them).
        """
        body = ids[:-1] if ids and ids[-1] == self.end_id else ids
        decoded = self.token_bytes.text(body)
        text = decoded.text[:limit]
        reading = read(text, self._find if tools else None)
        message = Message(
            role="assistant",
            content=reading.content,
            reasoning=reading.reasoning,
            tool_calls=reading.tool_calls(turn),
        )
        if decoded.starts is None:
            return Answer(message, None)
        starts = (*decoded.starts, *([len(text)] * (len(ids) - len(body))))
        return Answer(message, tuple(reading.place(at) for at in starts))

    def _ids(self, text: str) -> Ids:
        encoding = self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
        return tuple(encoding.ids)

    def _render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, prompt: bool
    ) -> str:
        text = self._tokenizer.apply_chat_template(
            [plain(message) for message in messages],
            tools=[_tool(spec) for spec in tools] or None,
            chat_template=self._source,
            add_generation_prompt=prompt,
            tokenize=False,
        )
        assert isinstance(text, str)
        return text

    def _render_added(self, added: tuple[Message, ...]) -> Ids:
        base = _base(added)
        before = self._render(base, (), prompt=False)
        whole = self._render((*base, *added), (), prompt=True)
        return (*self._after_end, *self._ids(_after(whole, before, "the turns before")))

    def _probe(self) -> Ids:
        """Check the template; the ids that end an assistant's turn.

        Raises:
            InputError: a longer conversation does not begin with the shorter one's text.
        """
        try:
            for shorter, longer in _probes():
                before = self._render(shorter, (_TOOL,), prompt=True)
                _after(self._render(longer, (_TOOL,), prompt=False), before, "its own prompt")
                self._check_added(longer)
            base = _base(())
            whole = self._render(base, (), prompt=False)
        except Exception as error:
            if type(error).__module__.startswith("jinja2"):
                raise input_error(
                    f"the chat template fails: {error}", path=_PATH, hint=_HINT
                ) from error
            raise
        tail = self._ids(whole[whole.rindex("answered") + len("answered") :])
        special = self._tokenizer.added_tokens_decoder
        if not tail or tail[0] not in special:
            raise input_error(
                "an answer does not end with a token of its own",
                path=_PATH,
                expected="an end-of-turn token right after the answer",
                hint=_HINT,
            )
        return tail

    def _check_added(self, messages: Sequence[Message]) -> None:
        """Added messages must be rendered the same with and without the messages before them."""
        for added in _ADDED[len(messages[-1].tool_calls) > 0]:
            before = self._render(messages, (_TOOL,), prompt=False)
            whole = self._render((*messages, *added), (_TOOL,), prompt=True)
            here = _after(whole, before, "the turns before")
            base = _base(added)
            alone = _after(
                self._render((*base, *added), (), prompt=True),
                self._render(base, (), prompt=False),
                "the turns before",
            )
            if here != alone:
                raise input_error(
                    "the chat template renders the same messages in two ways",
                    path=_PATH,
                    expected=f"{alone!r} wherever they stand, and found {here!r}",
                    hint=_HINT,
                )


def plain(message: Message) -> dict[str, Any]:
    """A message in the form that chat templates take."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


def _call(call: ToolCall) -> dict[str, Any]:
    # Templates differ in whether they take arguments as text; all of them take an object.
    try:
        arguments = json.loads(call.arguments, strict=False)
    except (ValueError, RecursionError):
        arguments = call.arguments
    if not isinstance(arguments, Mapping):
        arguments = call.arguments
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _tool(spec: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": spec.name,
            "description": spec.description,
            "parameters": dict(spec.parameters),
        },
    }


def _after(whole: str, before: str, what: str) -> str:
    """The part of `whole` after the prefix `before`.

    Raises:
        InputError: `before` is not a prefix.
    """
    if whole.startswith(before):
        return whole[len(before) :]
    at = next(i for i, (a, b) in enumerate(zip(whole + "\0", before, strict=False)) if a != b)
    raise input_error(
        "the chat template does not extend its own prefix",
        path=_PATH,
        expected=f"{before[at : at + 40]!r} of {what}, and found {whole[at : at + 40]!r}",
        hint=_HINT,
    )


def _base(added: Sequence[Message]) -> tuple[Message, ...]:
    """The shortest conversation that `added` can follow."""
    ids = [message.tool_call_id for message in added if message.role == "tool"]
    calls = tuple(ToolCall(id=each or "", name="f", arguments="{}") for each in ids)
    return (
        Message(role="user", content="u"),
        Message(role="assistant", content="answered", tool_calls=calls),
    )


_CALL = ToolCall(id="call00000", name="probe", arguments=_ARGUMENTS)
_RESULT = Message(role="tool", content="seen", tool_call_id="call00000")
_MORE = Message(role="user", content="continue")
_ADDED = {True: ((_RESULT,), (_RESULT, _MORE)), False: ((_MORE,),)}


def _probes() -> list[tuple[tuple[Message, ...], tuple[Message, ...]]]:
    """Conversations that end before and after an answer, as an agent has them."""
    start = (Message(role="system", content="s"), Message(role="user", content="goal"))
    acts = Message(role="assistant", content="I act.", tool_calls=(_CALL,))
    thinks = Message(role="assistant", content="I act.", reasoning="why", tool_calls=(_CALL,))
    says = Message(role="assistant", content="Done.")
    found = []
    for act in (acts, thinks):
        first = (*start, act)
        second = (*first, _RESULT, says)
        third = (*second, _MORE, act)
        found += [(start, first), ((*first, _RESULT), second), ((*second, _MORE), third)]
    return found
