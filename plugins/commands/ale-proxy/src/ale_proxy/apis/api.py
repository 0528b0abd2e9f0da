"""What an API has to be able to do to be recorded."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from attrs import frozen

from ale.types import Completion, Message, ToolSpec, Usage


class UnreadableError(ValueError):
    """A request or an answer can't be recorded; the message says why, without its content."""


@frozen(kw_only=True)
class Asked:
    """A request, read."""

    messages: tuple[Message, ...]
    """The whole conversation, or what follows the response that `previous` names."""
    tools: tuple[ToolSpec, ...] = ()
    model: str = ""
    stream: bool = False
    alone: bool = False
    """Never the continuation of an earlier request."""
    previous: str | None = None
    """Id of the response that this request continues, where the server keeps the conversation."""
    exact: bool = False
    """Each token is sampled with the model's own probability: see `samples_as_model`."""
    n: int = 1
    """Answers that it asks for, to each of its prompts."""
    prompts: tuple[tuple[Message, ...], ...] = ()
    """Its prompts where it has several, of which `messages` is the first."""


@frozen(kw_only=True)
class Answered:
    """An answer, read."""

    completion: Completion
    id: str | None = None
    """By which a later request may continue it."""
    messages: tuple[Message, ...] | None = None
    """The prompt that it answers, where the request has several."""


class AnswerReader(Protocol):
    """Reads one answer as it passes."""

    ends: tuple[bytes, ...]
    """An answer that is complete has one of these in its last bytes, and seldom before."""

    @property
    def complete(self) -> bool:
        """Has everything that belongs to the answer passed?"""
        ...

    def feed(self, data: bytes) -> None:
        """Some of its body. Raises `UnreadableError`."""
        ...

    def answers(self, asked: Asked, *, turn: int, trace: bool) -> Sequence[Answered]:
        """The answers, of which there is more than one only if the request asks for more.

        Args:
            turn: names the calls of a server that gives them no ids.
            trace: record the tokens, where all that is needed is there.

        Raises:
            UnreadableError: they are not complete, an error, or in another form.
        """
        ...

    def so_far(self) -> Message | None:
        """What has come of an answer that broke off; None where it is nothing that can be read."""
        ...


class Api(Protocol):
    """One API."""

    name: str
    token_fields: Mapping[str, Any]
    """With which a request asks for token ids and log-probabilities, as vLLM has it."""

    def asked(self, body: Mapping[str, Any]) -> Asked:
        """A request's body. Raises `UnreadableError`."""
        ...

    def reader(self, asked: Asked) -> AnswerReader:
        """For the answer to one request; streamed, by server-sent events."""
        ...

    def with_head(
        self, body: Mapping[str, Any], before: Sequence[Message], after: Sequence[Message]
    ) -> dict[str, Any]:
        """The body with the first messages of its conversation replaced.

        Args:
            before: its first messages, as `asked` has read them.
            after: those that stand in their place. One that is not changed stays as it is in the
                body, with all that a `Message` has no place for.
        """
        ...


class WholeBody:
    """Collects a body that is one JSON object."""

    ends: tuple[bytes, ...] = (b"}",)

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Some of the body."""
        self._data += data

    @property
    def complete(self) -> bool:
        """Is it a whole object by now?"""
        # A body without its last brace need not be parsed.
        return self._data[-80:].rstrip().endswith(b"}") and self._parsed() is not None

    def _parsed(self) -> Mapping[str, Any] | None:
        try:
            body = msgspec.json.decode(self._data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return body if isinstance(body, dict) else None

    def body(self) -> Mapping[str, Any]:
        """The object. Raises `UnreadableError`."""
        body = self._parsed()
        if body is None:
            raise UnreadableError("the answer is no JSON object")
        return body

    def so_far(self) -> Message | None:
        """None: a part of an object can't be read."""
        return None

    @property
    def data(self) -> bytes:
        """The bytes."""
        return bytes(self._data)


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """`value`, which has to be an object. Raises `UnreadableError`."""
    if not isinstance(value, dict):
        raise UnreadableError(f"{what} is no object")
    return value


def items(value: Any, what: str) -> list[Any]:
    """`value`, which has to be a list or null. Raises `UnreadableError`."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise UnreadableError(f"{what} is no list")
    return value


def read_event(data: bytes) -> Mapping[str, Any]:
    """The object in an event of a stream. Raises `UnreadableError`."""
    try:
        return mapping(msgspec.json.decode(data), "an event")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableError("an event of the stream is no JSON") from error


def usage_of(body: Mapping[str, Any]) -> Usage:
    """The tokens of an answer, as Anthropic and OpenAI's responses name them.

    Anthropic counts the part of a prompt that is cached, or written to the cache, beside the rest.
    """
    used = body.get("usage") or {}
    parts = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(
        prompt_tokens=sum(used.get(part) or 0 for part in parts),
        completion_tokens=used.get("output_tokens") or 0,
    )


def text_of(content: Any) -> str:
    """A content as text.

    A part that is no text becomes its type and a digest in brackets, as in
    ``[image_url 0a1b2c3d4e5f]``, so that conversations about two images are not taken for one.

    Raises:
        UnreadableError: it is neither a text nor a list of parts.
    """
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_part(mapping(part, "a part")) for part in items(content, "a content"))


def _part(part: Mapping[str, Any]) -> str:
    text = part.get("text", part.get("refusal"))
    if isinstance(text, str):
        return text
    content = {name: value for name, value in part.items() if name != "cache_control"}
    digest = hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:12]
    return f"[{part.get('type', 'part')} {digest}]"


def n_of(body: Mapping[str, Any]) -> int:
    """How many answers a request asks for. Raises `UnreadableError`."""
    n = body.get("n")
    if n is not None and (not isinstance(n, int) or n < 1):
        raise UnreadableError("the number of answers it asks for is none")
    return n or 1


def specs(tools: Any) -> tuple[ToolSpec, ...]:
    """The tools of a request: each an object with name, description and a schema.

    Args:
        tools: pairs are found under the names that OpenAI and Anthropic use.
    """
    found = [mapping(tool, "a tool") for tool in items(tools, "tools")]
    return tuple(_spec(tool) for tool in found)


def _spec(tool: Mapping[str, Any]) -> ToolSpec:
    about = tool.get("function") or tool.get("custom") or tool
    schema = about.get("parameters") or about.get("input_schema") or {}
    # A tool that the server itself has, such as a web search, has a type alone.
    name = about.get("name") or tool.get("type", "")
    return ToolSpec(name=str(name), description=about.get("description") or "", parameters=schema)


def unchanged_tail(
    before: Sequence[Message], after: Sequence[Message]
) -> Sequence[tuple[Message, int | None]]:
    """The messages of `after`, each with the index in `before` of the same message, or None."""
    places: list[tuple[Message, int | None]] = []
    start = 0
    for message in after:
        at = next((i for i in range(start, len(before)) if before[i] == message), None)
        places.append((message, at))
        start = start if at is None else at + 1
    return places
