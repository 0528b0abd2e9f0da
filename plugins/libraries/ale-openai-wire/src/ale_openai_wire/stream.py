"""Assembles an answer from server-sent events."""

from collections.abc import AsyncIterable, Iterator
from typing import Any

import msgspec

from ale_openai_wire.response import (
    FUNCTION_CALL,
    Answer,
    WireCall,
    WireChoice,
    WireFunction,
    WireLogprob,
    WireLogprobs,
    WireMessage,
    WireUsage,
    arguments_text,
)


class BrokenStreamError(ValueError):
    """The events ended before the answer did, or one can't be read."""


class StreamedError(Exception):
    """The server sent an error instead of the rest of the answer."""

    def __init__(self, error: Any) -> None:
        self.error = error
        super().__init__("the server sent an error")


class _FunctionDelta(msgspec.Struct):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"null")


class _CallDelta(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _FunctionDelta | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_CallDelta] | None = None
    function_call: _FunctionDelta | None = None
    """One call, as servers sent it before there were several."""


class _ChoiceDelta(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    """The whole message, which some servers send last."""
    finish_reason: str | None = None
    logprobs: WireLogprobs | None = None
    token_ids: list[int] | None = None


class _Event(msgspec.Struct):
    choices: list[_ChoiceDelta] | None = None
    model: str | None = None
    usage: WireUsage | None = None
    prompt_token_ids: list[int] | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Event)


class EventReader:
    """Cuts what arrives into the data of events; their names, ids and comments are not used here.

    Lines end at line feeds alone: a text in JSON may have other characters that `str.splitlines`
    takes for ends.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of the events that this chunk completes."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = b"".join([*self._line, end]).removesuffix(b"\r")
            self._line.clear()
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                yield b"\n".join(self._data)
                self._data.clear()
        self._line.append(rest)


class _Call:
    def __init__(self, index: int) -> None:
        self.index = index
        self.id: str | None = None
        self.name = ""
        self.arguments: list[str] = []

    def add(self, delta: _CallDelta) -> None:
        self.id = self.id or delta.id
        function = delta.function or _FunctionDelta()
        if function.name != self.name:  # some servers repeat it with every part
            self.name += function.name or ""
        if part := arguments_text(function.arguments):
            self.arguments.append(part)

    def is_continued_by(self, delta: _CallDelta) -> bool:
        """Does this part belong to the call, and not to another of the same index?

        Ollama and others give all calls the index 0. Another id is another call. Without one, a
        part with a name begins another call if this one is complete, or has another name and
        already arguments.
        """
        if delta.id and self.id:
            return delta.id == self.id
        function = delta.function
        if function is None or not function.name or not self.arguments:
            return True
        if function.name != self.name:
            return False
        return not arguments_text(function.arguments) or not self._is_complete()

    def _is_complete(self) -> bool:
        if not self.arguments[-1].rstrip().endswith("}"):  # spares joining them for each part
            return False
        try:
            msgspec.json.decode("".join(self.arguments))
        except msgspec.DecodeError:
            return False
        return True

    def wire(self) -> WireCall:
        text = msgspec.json.encode("".join(self.arguments))
        return WireCall(
            id=self.id, function=WireFunction(name=self.name, arguments=msgspec.Raw(text))
        )


class Assembly:
    """An answer that is not complete yet."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._ids: list[int] | None = None
        self._logprobs: list[WireLogprob] | None = None
        self._prompt_ids: list[int] | None = None
        self._model: str | None = None
        self._usage: WireUsage | None = None

    def add(self, data: bytes) -> None:
        """Add one event.

        Raises:
            BrokenStreamError: it can't be read.
            StreamedError: it is an error.
        """
        try:
            event = _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BrokenStreamError(f"an event can't be read: {error}") from error
        if event.error:
            raise StreamedError(event.error)
        self._model = self._model or event.model
        self._usage = event.usage or self._usage
        self._prompt_ids = self._prompt_ids or event.prompt_token_ids
        for choice in event.choices or ():
            self._add_choice(choice)

    def _add_choice(self, choice: _ChoiceDelta) -> None:
        self.finish_reason = choice.finish_reason or self.finish_reason
        if choice.token_ids is not None:
            self._ids = self._ids or []
            self._ids += choice.token_ids
        if choice.logprobs is not None and choice.logprobs.content is not None:
            self._logprobs = self._logprobs or []
            self._logprobs += choice.logprobs.content
        if choice.delta is not None:
            self._add_delta(choice.delta)
        if choice.message is not None:
            self._add_message(choice.message)

    def _add_delta(self, delta: _Delta) -> None:
        self._content.append(delta.content or "")
        self._refusal.append(delta.refusal or "")
        self._reasoning.append(delta.reasoning_content or delta.reasoning or "")
        for call in delta.tool_calls or ():
            self._add_call(call)
        if delta.function_call is not None:
            self._add_call(_CallDelta(index=0, id=FUNCTION_CALL, function=delta.function_call))

    def _add_message(self, message: _Delta) -> None:
        """What the parts have not brought."""
        if not self._calls:
            self._add_delta(
                _Delta(tool_calls=message.tool_calls, function_call=message.function_call)
            )
        if not any(self._content):
            self._content.append(message.content or "")
        if not any(self._reasoning):
            self._reasoning.append(message.reasoning_content or message.reasoning or "")

    def _add_call(self, delta: _CallDelta) -> None:
        """Add a part to the last call of its index; without an index, to the last of all."""
        known = [call for call in self._calls if delta.index in (None, call.index)]
        if known and known[-1].is_continued_by(delta):
            known[-1].add(delta)
            return
        following = max((call.index for call in self._calls), default=-1) + 1
        self._calls.append(_Call(following if delta.index is None else delta.index))
        self._calls[-1].add(delta)

    def answer(self) -> Answer:
        """All of it.

        Raises:
            BrokenStreamError: its end is missing.
        """
        if self.finish_reason is None:
            raise BrokenStreamError("the stream ended before the answer did")
        message = WireMessage(
            content="".join(self._content),
            refusal="".join(self._refusal) or None,
            reasoning="".join(self._reasoning) or None,
            tool_calls=[call.wire() for call in sorted(self._calls, key=lambda call: call.index)],
        )
        choice = WireChoice(
            message=message,
            finish_reason=self.finish_reason,
            token_ids=self._ids,
            logprobs=None if self._logprobs is None else WireLogprobs(content=self._logprobs),
        )
        return Answer(
            choices=[choice],
            model=self._model,
            usage=self._usage,
            prompt_token_ids=self._prompt_ids,
        )


async def assemble(chunks: AsyncIterable[bytes]) -> Answer:
    """The answer of a stream of events; reads no further than ``[DONE]``.

    Raises:
        BrokenStreamError: it ended too early, or an event can't be read.
        StreamedError: the server sent an error instead.
    """
    reader, assembly = EventReader(), Assembly()
    async for chunk in chunks:
        for data in reader.feed(chunk):
            if data.strip() == b"[DONE]":
                return assembly.answer()
            assembly.add(data)
    return assembly.answer()
