"""Chat templates applied turn by turn, exact to the token.

The first prompt is rendered by the tokenizer's chat template. Every later one is the
existing ids, followed by the ids of the added messages; nothing is rendered or tokenised twice.
The added ids are what the template writes after the answer at the end of a short conversation.
The result equals the whole conversation as the template writes it only if the template extends its
own prefix. This is checked when the policy is built, unless turns are to be left as sampled.

Where the answer of the short conversation ends is found by a random mark in it, which is in none of
the messages. What follows the answer is compared with the same messages with other marks as their
contents: an end that only a content has, or a message that the template leaves out, is an error.
"""

import json
import secrets
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from attrs import frozen

from ale.errors import InputError
from ale.types import Message, ToolCall, ToolSpec, replace
from ale_training.chat.calls import Format, read
from ale_training.chat.formats import FORMATS
from ale_training.chat.rendering import HINT, PATH, Rendering
from ale_training.chat.token_bytes import TokenBytes

Ids = tuple[int, ...]
Turns = Literal["as-rendered", "as-sampled"]

_REWRITES = (
    f"{HINT} of your own; or turns: as-sampled, which leaves earlier turns as they were sampled "
    "where the template would rewrite them"
)
_OPENING = ("<|observation|>", "<|user|>", "<|tool_response>")
"""Tokens by which a model (GLM, Gemma 4) ends its answer and which begin what follows it."""
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
        tokenizer: a fast tokenizer of transformers. If it has several templates, the one named
            ``tool_use`` writes conversations with tools, and ``default`` all others.
        calls: how the model writes tool calls, a name of `FORMATS`.
        turns: ``as-rendered`` refuses a template that would write earlier turns differently from
            how they were sampled; ``as-sampled`` takes any, and leaves turns as they were sampled.
        ends: further tokens that end an answer, as the model's generation config lists them.
        today: the date that the template may write into prompts; default: now.

    Raises:
        InputError: there is no template, it does not extend its own prefix, or it can't write
            a conversation of system, user and assistant.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        calls: str = "hermes",
        turns: Turns = "as-rendered",
        ends: Collection[int] = (),
        today: datetime | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._format: Format = FORMATS[calls]
        self.token_bytes = TokenBytes(tokenizer)
        self._render = Rendering(tokenizer, self._format, today or datetime.now(UTC))
        self._extends = turns == "as-rendered"
        self._added = lru_cache(maxsize=256)(self._render_added)
        self.end_ids: frozenset[int] = frozenset(ends)
        """The tokens that end a turn; the model writes one of them, which is trained on too."""
        self.no_tools: str | None = None
        """Why the template can't write tool calls and their results; None if it can."""
        self._probe()

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> Ids:
        """The ids of a new conversation, up to where the answer begins."""
        return self._ids(self._render(messages, tools, prompt=True))

    def extend(
        self,
        ids: Ids,
        added: Sequence[Message],
        calls: Sequence[ToolCall] = (),
        *,
        tools: bool = True,
    ) -> Ids:
        """The next prompt: `ids` (prompt and answer so far) and the added messages.

        An answer that was cut off before a token that ends it gets one here, as part of the prompt:
        it was not sampled. One that ended gets no second.

        Args:
            ids: the ids so far.
            added: the messages since the answer.
            calls: the answer's calls; some templates name the tool that gave a result.
            tools: does the conversation have tools?

        Raises:
            InputError: the template can't write these messages.
        """
        names = tuple(call.name for call in calls)
        following, ends = self._added(tuple(added), names, tools)
        if ids and (ids[-1] == following[0] or (ends and ids[-1] in self.end_ids)):
            following = following[1:]
        return (*ids, *following)

    def answer(self, message: Message) -> Ids:
        """The ids of `message` as the model would generate it, the token that ends it included.

        Raises:
            InputError: the template can't write it.
        """
        if message.tool_calls and self.no_tools:
            raise InputError.of(self.no_tools, path=PATH, hint=HINT)
        base, tools = (Message(role="user", content="u"),), bool(message.tool_calls)
        before = self._render(base, prompt=True, tool_use=tools)
        whole = self._render((*base, message), prompt=False, tool_use=tools)
        written = _after(whole, before, "the prompt that asks for the answer")
        # What the template writes from the end of any such answer on; the message may have the
        # text of a token that ends answers.
        mark = next(_nonces([message]))
        shown = _calls(["id"], ["f"], mark) if tools else ()
        short = Message(role="assistant", content="" if tools else mark, tool_calls=shown)
        tail = _behind(self._render((*base, short), prompt=False, tool_use=tools), mark)
        at, end = self._end_in(tail)
        if end:
            rest = tail[at:]
            if not written.endswith(rest):
                raise _two_ways(rest, written[-len(rest) :])
            return self._ids(written[: len(written) - len(rest)] + end)
        # The answer ends with the token that begins what follows, such as GLM's <|observation|>.
        results = [
            Message(role="tool", content="", tool_call_id=call.id) for call in message.tool_calls
        ]
        following = tuple(results[:1]) or (_MORE,)
        names = tuple(call.name for call in message.tool_calls)
        return (*self._ids(written), self._added(following, names, tools)[0][0])

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

    def _render_added(
        self, added: tuple[Message, ...], names: tuple[str, ...], tools: bool
    ) -> tuple[Ids, bool]:
        """The ids from the end of an answer on, and whether the first of them ends it.

        If it does not, it begins the first added message, and the model may have sampled it, as GLM
        does with <|observation|>.
        """
        nonces = _nonces(added, names)
        mark, fill = next(nonces), next(nonces)
        base = self._base(added, names, mark)
        filled = [
            replace(each, content=f"{fill}x{index}x" if each.content else "")
            for index, each in enumerate(added)
        ]
        whole = self._render((*base, *added), prompt=True, tool_use=tools)
        after = _behind(whole, mark)
        shape = _behind(self._render((*base, *filled), prompt=True, tool_use=tools), mark)
        known = shape.partition(fill)[0]
        at, end = self._end_in(known) if base[-1].tool_calls else (0, "")
        if base[-1].tool_calls and not end:
            message = "nothing that can be found ends an answer with a tool call"
            raise InputError.of(message, path=PATH, hint=HINT)
        if not after.startswith(known[: at + len(end)]):
            raise _two_ways(known[: at + len(end)], after[: at + len(end)])
        _check_complete(shape, filled)
        if self._extends:
            before = self._render(base, prompt=False, tool_use=tools)
            _after(whole, before, "the turns before")
        ids = self._ids(after[at:])
        if not ids or ids[0] not in self._tokenizer.added_tokens_decoder:
            raise InputError.of(
                "an answer does not end with a token of its own",
                path=PATH,
                expected="an end-of-turn token right after the answer",
                hint=HINT,
            )
        return ids, not after.startswith(_OPENING, at)

    def _end_in(self, text: str) -> tuple[int, str]:
        """Where the first token that can end an answer begins, and its text; else the end of
        `text`, and nothing.
        """
        ends = [self.token_bytes.text([each]).text for each in sorted(self.end_ids)]
        found = [(at, end) for end in ends if end and (at := text.find(end)) >= 0]
        return min(found, default=(len(text), ""))

    def _base(
        self, added: Sequence[Message], names: Sequence[str], mark: str
    ) -> tuple[Message, ...]:
        """The shortest conversation that `added` can follow, in which the answer says `mark` last.

        Args:
            added: the messages that follow.
            names: names of the tools that the answer before `added` has called.
            mark: a text that is nowhere else.
        """
        ids = [message.tool_call_id or "" for message in added if message.role == "tool"]
        named = [*names, *["f"] * len(ids)][: len(ids)]
        if not self._render.several:
            ids, named = ids[:1], named[:1]
        calls = _calls(ids, named, mark)
        return (
            Message(role="user", content="u"),
            Message(role="assistant", content="" if calls else mark, tool_calls=calls),
        )

    def _probe(self) -> None:
        """Decide, on short conversations, whether and how the template can be used.

        Raises:
            InputError: it can't be.
        """
        for messages in ((_GOAL,), (_SYSTEM, _GOAL)):
            self._render(messages, prompt=True)
        self.end_ids |= {self._added((_MORE,), (), False)[0][0]}
        try:
            self._probe_calls()
        except InputError as error:
            what = "the chat template can't write tool calls and their results"
            self.no_tools = f"{what} ({error.problems[0].message})"
        if self._extends:
            tools = () if self.no_tools else (_TOOL,)
            for shorter, longer in _probes(calls=not self.no_tools):
                before = self._render(shorter, tools, prompt=True)
                _after(self._render(longer, tools, prompt=False), before, "its own prompt")
                self._check_added(longer, tools)

    def _probe_calls(self) -> None:
        """Learn whether an answer may have several calls.

        Raises:
            InputError: it can't even have one.
        """
        calls = _calls(["call00000"], ["probe"], "1")
        result = Message(role="tool", content="seen", tool_call_id="call00000")
        other = Message(role="tool", content="more", tool_call_id="call00001")
        self._render((_SYSTEM, _GOAL), (_TOOL,), prompt=True)
        if self._render.for_tools:
            self.end_ids |= {self._added((_MORE,), (), True)[0][0]}
        bad = replace(calls[0], arguments='{"a": ')
        for call in (*calls, bad):
            act = Message(role="assistant", content="", tool_calls=(call,))
            try:
                self._render((_GOAL, act, result), (_TOOL,), prompt=True)
            except InputError:
                if call is not bad:
                    raise
                self._render.texts = False
                self._render((_GOAL, act, result), (_TOOL,), prompt=True)
        self._added((result,), ("probe",), True)
        try:
            self._added((result, other), ("probe", "probe"), True)
        except InputError:
            self._render.several = False
            self._added((result, other), ("probe", "probe"), True)

    def _check_added(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> None:
        """Added messages must be rendered the same with and without the messages before them."""
        calls = messages[-1].tool_calls
        for added in _ADDED[len(calls) > 0]:
            before = self._render(messages, tools, prompt=False)
            whole = self._render((*messages, *added), tools, prompt=True)
            here = _after(whole, before, "the turns before")
            base = self._base(added, [call.name for call in calls], "answer")
            alone = _after(
                self._render((*base, *added), prompt=True, tool_use=bool(tools)),
                self._render(base, prompt=False, tool_use=bool(tools)),
                "the turns before",
            )
            if here != alone:
                raise _two_ways(alone, here)


def _nonces(messages: Sequence[Message], names: Sequence[str] = ()) -> Iterator[str]:
    """Random words that are in none of these messages; nobody who wrote one could guess them."""
    texts = [str(message) for message in messages]
    while True:
        nonce = f"q{secrets.token_hex(12)}"
        if not any(nonce in text for text in (*texts, *names)):
            yield nonce


def _behind(text: str, mark: str) -> str:
    """The text that a template writes after the last answer, which says `mark` last.

    Raises:
        InputError: it writes the answer not once.
    """
    parts = text.split(mark)
    if len(parts) != 2:
        what = "leaves a part of an answer out" if len(parts) < 2 else "writes an answer twice"
        raise InputError.of(f"the chat template {what}", path=PATH, hint=HINT)
    return parts[1]


def _check_complete(shape: str, filled: Sequence[Message]) -> None:
    """All added messages must be there, in order.

    Raises:
        InputError: one is not.
    """
    at = 0
    for message in filled:
        found = shape.find(message.content, at)
        if found < 0:
            raise InputError.of(
                f"the chat template leaves a message with the role {message.role!r} out",
                path=PATH,
                hint=HINT,
            )
        at = found + len(message.content)


def _two_ways(expected: str, found: str) -> InputError:
    return InputError.of(
        "the chat template renders the same messages in two ways",
        path=PATH,
        expected=f"{expected!r} wherever they stand, and found {found!r}",
        hint=_REWRITES,
    )


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
        path=PATH,
        expected=f"{before[at : at + 40]!r} of {what}, and found {whole[at : at + 40]!r}",
        hint=_REWRITES,
    )


def _calls(ids: Sequence[str], names: Sequence[str], mark: str) -> tuple[ToolCall, ...]:
    """Calls of which the last has `mark` as its argument."""
    last = len(ids) - 1
    return tuple(
        ToolCall(id=own, name=name, arguments=json.dumps({"a": mark if index == last else "b"}))
        for index, (own, name) in enumerate(zip(ids, names, strict=True))
    )


_CALL = ToolCall(id="call00000", name="probe", arguments='{"a": 1}')
_RESULT = Message(role="tool", content="seen", tool_call_id="call00000")
_SYSTEM, _GOAL = Message(role="system", content="s"), Message(role="user", content="goal")
_MORE = Message(role="user", content="continue")
_ADDED = {True: ((_RESULT,), (_RESULT, _MORE)), False: ((_MORE,),)}


def _probes(*, calls: bool) -> list[tuple[tuple[Message, ...], tuple[Message, ...]]]:
    """Conversations that end before and after an answer, as an agent has them."""
    start = (_SYSTEM, _GOAL)
    acts = Message(role="assistant", content="I act.", tool_calls=(_CALL,))
    says = Message(role="assistant", content="Done.")
    if not calls:
        spoken = (*start, says, _MORE)
        thinks = replace(says, reasoning="why")
        return [(start, (*start, thinks)), (start, (*start, says)), (spoken, (*spoken, says))]
    found = []
    for act in (acts, replace(acts, reasoning="why")):
        first = (*start, act)
        second = (*first, _RESULT, says)
        third = (*second, _MORE, act)
        found += [(start, first), ((*first, _RESULT), second), ((*second, _MORE), third)]
    return found
