"""One request and its answer, read as they pass."""

import time
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from attrs import evolve

from ale.middleware import Rewriting, head_of
from ale.types import Message
from ale_openai_wire.listening import MOST_BODY
from ale_proxy.admission import inflated
from ale_proxy.apis import Answered, AnswerReader, Api, Asked, UnreadableError
from ale_proxy.credentials import without_credentials

if TYPE_CHECKING:
    from ale_proxy.sessions import Asker, Session

READ_ENCODINGS = ("gzip", "deflate", "identity")
"""Of bodies that can be read."""
BATCH = 16 << 10
"""Bytes of an answer that are kept until they are read together."""
LONGEST_END = 32
"""Bytes; no reader's `ends` are longer."""
NOT_SAMPLING = frozenset(
    {
        *("messages", "input", "prompt", "system", "instructions", "tools", "functions", "model"),
        *("stream", "stream_options", "previous_response_id", "conversation", "include", "store"),
        *("user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
        *("service_tier", "background", "mcp_servers", "container", "suffix", "echo"),
    }
)
"""Fields of a request that do not say how to sample."""
_OF_ANOTHER_FORM = (UnreadableError, AttributeError, KeyError, TypeError, ValueError)
"""What reading a body of any form can raise: one that can't be recorded still passes."""


class Exchange:
    """One request that is to be recorded.

    Args:
        body: of the request.
        encoding: the request's ``Content-Encoding``.
    """

    def __init__(self, api: Api, body: bytes, encoding: str = "") -> None:
        self.api = api
        self.messages: tuple[Message, ...] = ()
        """The conversation as the model is given it; empty until `asked` is."""
        self.left_out: str | None = None
        """Why it is not recorded, if it is not."""
        self.recorded = False
        self.asker: Asker | None = None
        self.session: Session | None = None
        self.changed = False
        """Is the body that is sent another one than the one that came?"""
        self._raw: tuple[bytes, str] | None = (body, encoding)
        """Until it is read."""
        self._asked: Asked | None = None
        self._body: Mapping[str, Any] = {}
        self._reader: AnswerReader | None = None
        self._inflate: Any = None
        self._room = MOST_BODY
        """Bytes to which a compressed answer may still be inflated."""
        self._unread, self._tail = bytearray(), b""
        self._at_once = False
        """Is what comes read at once, since the end may be near?"""
        self._started = time.perf_counter()

    @property
    def asked(self) -> Asked | None:
        """The request, read when this is first needed; None if it can't be read."""
        self.read_request()
        return self._asked

    def read_request(self) -> None:
        """Read the request, unless that is done."""
        if self._raw is None:
            return
        raw, self._raw = self._raw, None
        try:
            self._body = _object(_decoded(*raw))
            self._asked = self.api.asked(self._body)
            self.messages = self._asked.messages
        except _OF_ANOTHER_FORM as error:
            self._leave_out("the request", error)

    @property
    def duration_s(self) -> float:
        """Since the request came, seconds."""
        return time.perf_counter() - self._started

    def with_fields(self, fields: Mapping[str, Any]) -> bytes | None:
        """The body with these fields where it does not have them.

        None where it has them all, or can't be read.
        """
        if self.asked is None or fields.keys() <= self._body.keys():
            return None
        self._body, self.changed = {**fields, **self._body}, True
        return msgspec.json.encode(self._body)

    async def rewrite(self, rewriting: Rewriting) -> bytes | None:
        """The body with its first messages rewritten; None where they stay as they are.

        Raises whatever a middleware raises.
        """
        if self.asked is None:
            return None
        if self.asked.prompts:
            self.left_out = "it has several prompts, to which a middleware adds nothing"
            return None
        before = head_of(self.messages)
        if self.asked.previous is not None:
            # The server has the beginning, but for the instructions.
            before = tuple(message for message in before if message.role == "system")
        after = await rewriting.head(before) if before else before
        if after == before:
            return None
        self._body, self.changed = self.api.with_head(self._body, before, after), True
        self.messages = (*after, *self.messages[len(before) :])
        return msgspec.json.encode(self._body)

    def answer_begins(self, status: int, headers: Mapping[str, str]) -> None:
        """The head of the answer has come."""
        if self.asked is None or self.left_out is not None:
            return
        if status != 200:
            self.left_out = f"the server answered with status {status}"
            return
        encoding = headers.get("Content-Encoding", "identity").lower()
        if encoding not in READ_ENCODINGS:
            self.left_out = f"the answer has the encoding {encoding}"
            return
        if encoding != "identity":
            self._inflate, self._at_once = zlib.decompressobj(wbits=47), True
        stream = headers.get("Content-Type", "").startswith("text/event-stream")
        self._reader = self.api.reader(evolve(self.asked, stream=stream))

    def feed(self, data: bytes) -> bool:
        """Some of the answer's body has come; may all that is recorded have passed with it?

        Reading each piece by itself takes longer than reading many together, so pieces are kept
        until they are many, or may have the end.
        """
        if self._reader is None or self.left_out is not None:
            return False
        self._unread += data
        if not self._at_once:
            seen = self._tail + data  # the end may come in several pieces
            for end in self._reader.ends:
                self._at_once |= end in seen
            self._tail = seen[-LONGEST_END:]
        if self._at_once or len(self._unread) >= BATCH:
            self._read()
        return self._at_once

    def may_end(self, data: bytes) -> bool:
        """Can the end of what is recorded be in this piece?

        Args:
            data: a whole event or more, before which a whole one came.
        """
        if self._reader is None or self.left_out is not None:
            return False
        if not self._at_once:
            for end in self._reader.ends:
                if end in data:
                    return True
        return self._at_once

    def _read(self) -> None:
        """Read what was kept. Never raises: what can't be read still passes."""
        if self._reader is None or self.left_out is not None or not self._unread:
            return
        data, self._unread = bytes(self._unread), bytearray()
        try:
            self._reader.feed(data if self._inflate is None else self._inflated(data))
        except (*_OF_ANOTHER_FORM, zlib.error) as error:
            self._leave_out("the answer", error)

    def _inflated(self, data: bytes) -> bytes:
        """More of a compressed answer.

        Raises:
            UnreadableError: together it has more than `MOST_BODY` bytes; no more are made.
        """
        found: bytes = self._inflate.decompress(data, self._room + 1)
        if len(found) > self._room:
            raise UnreadableError("it is inflated to too many bytes")
        self._room -= len(found)
        return found

    @property
    def complete(self) -> bool:
        """Has all that is recorded passed, perhaps before the end of the connection?"""
        self._read()
        return self.left_out is None and self._reader is not None and self._reader.complete

    def answers(self, *, turn: int, processed: bool) -> Sequence[Answered]:
        """The answers; none if they are left out.

        Args:
            turn: number of the first in its session.
            processed: the server's log-probabilities are those of the distribution that it samples
                from, whatever the request says.
        """
        self._read()
        if self.asked is None or self.left_out is not None or self._reader is None:
            return ()
        trace = processed or self.asked.exact
        try:
            return self._reader.answers(self.asked, turn=turn, trace=trace)
        except _OF_ANOTHER_FORM as error:
            self._leave_out("the answer", error)
            return ()

    def so_far(self) -> Message | None:
        """What has come of an answer that is left out; None where it is nothing to read."""
        try:
            found = None if self._reader is None else self._reader.so_far()
        except _OF_ANOTHER_FORM:
            return None  # of an answer in another form, as `left_out` says
        empty = found is None or not (found.content or found.reasoning or found.tool_calls)
        return None if empty else found

    @property
    def sampling(self) -> dict[str, Any]:
        """What the request says of how to sample: all but the conversation and what is secret."""
        self.read_request()
        found = {name: each for name, each in self._body.items() if name not in NOT_SAMPLING}
        plain: dict[str, Any] = without_credentials(found)
        return plain

    def give_up(self, reason: str) -> None:
        """The answer has ended early."""
        self._read()
        self.left_out = self.left_out or reason

    def _leave_out(self, what: str, error: Exception) -> None:
        reason = str(error) if isinstance(error, UnreadableError) else "it has an unknown form"
        self.left_out = f"{what} can't be recorded: {reason}"


def _decoded(body: bytes, encoding: str) -> bytes:
    if encoding.lower() in ("", "identity"):
        return body
    if encoding.lower() not in READ_ENCODINGS:
        raise UnreadableError(f"its encoding is {encoding}")
    try:
        return inflated(body)
    except OverflowError:
        raise UnreadableError("it is inflated to too many bytes") from None
    except zlib.error:
        raise UnreadableError("it is not compressed as it says") from None


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UnreadableError("it is no JSON") from None
    if not isinstance(found, dict):
        raise UnreadableError("it is no JSON object")
    return found
