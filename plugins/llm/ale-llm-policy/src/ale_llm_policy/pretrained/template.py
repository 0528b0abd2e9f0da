"""Chat templates applied turn by turn, exact to the token.

The first prompt is rendered by the tokenizer's chat template. Every later one is the
existing ids, followed by the ids of the added messages; nothing is rendered or tokenised twice.
The added ids are what the template writes after the answer at the end of a short conversation.
The result equals the whole conversation as the template writes it only if the template extends its
own prefix. This is checked when the policy is built, unless turns are to be left as sampled.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from attrs import frozen
from jinja2 import TemplateError

from ale.errors import InputError
from ale.types import Message, ToolCall, ToolSpec
from ale_llm_policy.pretrained.calls import Format, read
from ale_llm_policy.pretrained.formats import FORMATS
from ale_llm_policy.pretrained.token_bytes import TokenBytes

Ids = tuple[int, ...]

_PATH = "llm.chat_template"
_HINT = (
    "use a template that extends its own output: chat_template: chatml, trl/NAME such as "
    "trl/qwen3_training, or a file of your own; or turns: as-sampled, which leaves earlier turns "
    "as they were sampled where the template would rewrite them"
)
_ANSWER = "answered"
_OPENING = ("<|observation|>", "<|user|>", "<|tool_response>")
"""Tokens by which a model (GLM, Gemma 4) ends its answer and which begin what follows it."""
Turns = Literal["as-rendered", "as-sampled"]
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
    """Where in the message's content each id starts, as in `TokenTrace`."""


class ChatTemplate:
    """A tokenizer's chat template, applied turn by turn.

    Args:
        tokenizer: a fast tokenizer of transformers.
        calls: how the model writes tool calls, a name of `FORMATS`.
        turns: ``as-rendered`` refuses a template that would write earlier turns differently from
            how they were sampled; ``as-sampled`` takes any, and leaves turns as they were sampled.
        ends: further tokens that end an answer, as the model's generation config lists them.

    Raises:
        InputError: there is no template, or it does not extend its own prefix.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        calls: str = "hermes",
        turns: Turns = "as-rendered",
        ends: Collection[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._format: Format = FORMATS[calls]
        self.token_bytes = TokenBytes(tokenizer)
        if not tokenizer.chat_template:
            raise InputError.of("the tokenizer has no chat template", path=_PATH, hint=_HINT)
        self._added = lru_cache(maxsize=256)(self._render_added)
        self.end_ids: frozenset[int] = frozenset(ends)
        """The tokens that end a turn; the model writes one of them, which is trained on too."""
        self._probe(turns)

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """The ids of a new conversation, up to where the answer begins."""
        return self._ids(self._render(messages, tools, prompt=True))

    def extend(self, ids: Ids, added: Sequence[Message], calls: Sequence[ToolCall] = ()) -> Ids:
        """The next prompt: `ids` (prompt and answer so far) and the added messages.

        An answer that was cut off before a token that ends it gets one here, as part of the prompt:
        it was not sampled. One that ended gets no second.

        Args:
            ids: the ids so far.
            added: the messages since the answer.
            calls: the answer's calls; some templates name the tool that gave a result.
        """
        following, ends = self._added(tuple(added), tuple(call.name for call in calls))
        if ids and (ids[-1] == following[0] or (ends and ids[-1] in self.end_ids)):
            following = following[1:]
        return (*ids, *following)

    def answer(self, message: Message) -> Ids:
        """The ids of `message` as the model would generate it, the token that ends it included."""
        base = (Message(role="user", content="u"),)
        before = self._render(base, (), prompt=True)
        whole = self._render((*base, message), (), prompt=False)
        ids = self._ids(_after(whole, before, "the prompt that asks for the answer"))
        last = max((i for i, each in enumerate(ids) if each in self.end_ids), default=None)
        if last is not None:
            return ids[: last + 1]
        # The answer ends with the token that begins what follows, such as GLM's <|observation|>.
        results = [
            Message(role="tool", content="", tool_call_id=call.id) for call in message.tool_calls
        ]
        following = tuple(results[:1]) or (_MORE,)
        names = tuple(call.name for call in message.tool_calls)
        return (*ids, self._added(following, names)[0][0])

    def read(
        self,
        ids: Sequence[int],
        *,
        turn: int,
        tools: Sequence[ToolSpec] = (),
        limit: int | None = None,
    ) -> Answer:
        """Parse sampled ids as a message.

        Args:
            ids: as sampled; a last token that ends the answer is not text.
            turn: number of the turn, for the ids of the calls.
            tools: the request's tools. Without any, nothing is parsed as a call.
            limit: number of characters of the text that count (a stop string follows them).
        """
        body = ids[:-1] if ids and ids[-1] in self.end_ids else ids
        decoded = self.token_bytes.text(body)
        text = decoded.text[:limit]
        reading = read(text, self._format, calls=bool(tools))
        message = Message(
            role="assistant",
            content=reading.content,
            reasoning=reading.reasoning,
            tool_calls=reading.tool_calls(turn, tools),
        )
        if decoded.starts is None:
            return Answer(message, None)
        starts = (*decoded.starts, *([len(text)] * (len(ids) - len(body))))
        return Answer(message, tuple(reading.place(at) for at in starts))

    def _ids(self, text: str) -> Ids:
        # Unlike `encode`, this tracks no offsets, and other threads run meanwhile.
        encode = self._tokenizer.backend_tokenizer.encode_batch_fast
        return tuple(encode([text], add_special_tokens=False)[0].ids)

    def _render(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, prompt: bool
    ) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                [plain(message, self._format) for message in messages],
                tools=[_tool(spec) for spec in tools] or None,
                add_generation_prompt=prompt,
                tokenize=False,
            )
        except (TemplateError, TypeError) as error:
            message = f"the chat template fails: {error}"
            raise InputError.of(message, path=_PATH, hint=_HINT) from error
        assert isinstance(text, str)
        return text

    def _render_added(self, added: tuple[Message, ...], names: tuple[str, ...]) -> tuple[Ids, bool]:
        """The ids from the end of an answer on, and whether the first of them ends it.

        If it does not, it begins the first added message, and the model may have sampled it, as GLM
        does with <|observation|>.
        """
        base = _base(added, names)
        whole = self._render((*base, *added), (), prompt=True)
        ends = [self.token_bytes.text([each]).text for each in sorted(self.end_ids)]
        after = _end_of(whole, ends, calls=bool(base[-1].tool_calls))
        if not after:
            raise InputError.of("nothing that can be found ends an answer", path=_PATH, hint=_HINT)
        return self._ids(after), not after.startswith(_OPENING)

    def _probe(self, turns: Turns) -> None:
        """Check the template, and learn which token ends an answer.

        Raises:
            InputError: a longer conversation does not begin with the shorter one's text.
        """
        if turns == "as-rendered":
            for shorter, longer in _probes():
                before = self._render(shorter, (_TOOL,), prompt=True)
                _after(self._render(longer, (_TOOL,), prompt=False), before, "its own prompt")
                self._check_added(longer)
        whole = self._render((*_base(()), _MORE), (), prompt=False)
        tail = self._ids(_end_of(whole, (), calls=False))
        if not tail or tail[0] not in self._tokenizer.added_tokens_decoder:
            raise InputError.of(
                "an answer does not end with a token of its own",
                path=_PATH,
                expected="an end-of-turn token right after the answer",
                hint=_HINT,
            )
        self.end_ids |= {tail[0]}

    def _check_added(self, messages: Sequence[Message]) -> None:
        """Added messages must be rendered the same with and without the messages before them."""
        for added in _ADDED[len(messages[-1].tool_calls) > 0]:
            before = self._render(messages, (_TOOL,), prompt=False)
            whole = self._render((*messages, *added), (_TOOL,), prompt=True)
            here = _after(whole, before, "the turns before")
            base = _base(added, [call.name for call in messages[-1].tool_calls])
            alone = _after(
                self._render((*base, *added), (), prompt=True),
                self._render(base, (), prompt=False),
                "the turns before",
            )
            if here != alone:
                raise InputError.of(
                    "the chat template renders the same messages in two ways",
                    path=_PATH,
                    expected=f"{alone!r} wherever they stand, and found {here!r}",
                    hint=_HINT,
                )


def plain(message: Message, form: Format) -> dict[str, Any]:
    """A message in the form that chat templates of a family take."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        # Two names for the same thing; gpt-oss uses the second.
        fields["reasoning_content"] = fields["thinking"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [_call(call, form) for call in message.tool_calls]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = form.call_id(message.tool_call_id)
    return fields


def _call(call: ToolCall, form: Format) -> dict[str, Any]:
    # Some templates take arguments as text, but most take an object.
    try:
        arguments = json.loads(call.arguments, strict=False)
    except (ValueError, RecursionError):
        arguments = call.arguments
    if form.text_arguments or not isinstance(arguments, Mapping):
        arguments = call.arguments
    return {
        "id": form.call_id(call.id),
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
    raise InputError.of(
        "the chat template does not extend its own prefix",
        path=_PATH,
        expected=f"{before[at : at + 40]!r} of {what}, and found {whole[at : at + 40]!r}",
        hint=_HINT,
    )


def _end_of(text: str, ends: Sequence[str], *, calls: bool) -> str:
    """What a template writes from the end of the last answer on.

    After a call, this begins with the first token that can end an answer: anything before it, such
    as brackets, belongs to the call. Empty if there is no such token.
    """
    rest = text[text.rindex(_ANSWER) + len(_ANSWER) :]
    if not calls:
        return rest
    return rest[min((at for end in ends if (at := rest.find(end)) >= 0), default=len(rest)) :]


def _base(added: Sequence[Message], names: Sequence[str] = ()) -> tuple[Message, ...]:
    """The shortest conversation that `added` can follow, which says `_ANSWER` last.

    Args:
        added: the messages that follow.
        names: names of the tools that the answer before `added` has called.
    """
    ids = [message.tool_call_id or "" for message in added if message.role == "tool"]
    named = [*names, *["f"] * len(ids)]
    arguments = json.dumps({"a": _ANSWER})
    calls = tuple(
        ToolCall(id=each, name=name, arguments=arguments)
        for each, name in zip(ids, named, strict=False)
    )
    return (
        Message(role="user", content="u"),
        Message(role="assistant", content="" if calls else _ANSWER, tool_calls=calls),
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
