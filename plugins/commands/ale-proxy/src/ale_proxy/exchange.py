"""One request and its answer, read as they pass, and the session whose request it is."""

import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from attrs import define, evolve, field, frozen

from ale.middleware import Rewriting, head_of
from ale.types import Message, Task
from ale_openai_wire.listening import MOST_BODY
from ale_proxy.admission import inflated
from ale_proxy.apis import Answered, AnswerReader, Api, Asked, UnreadableError
from ale_proxy.assignment import Assignment
from ale_proxy.conversation import Turns
from ale_proxy.credentials import without_credentials
from ale_proxy.journal import Broken, Entry, Feedback

UNFINISHED = "its session ended before the answer was complete"
Ending = Literal["feedback", "end", "timeout", "shutdown"]
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


@frozen(kw_only=True)
class Asker:
    """Whose a request is."""

    name: str | None
    """Of its session, if it is named."""
    of: str
    """By which requests without a name are told apart: the digest of a key."""
    task_id: str | None = None
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


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


@define(eq=False)
class Session:
    """One open session."""

    name: str
    of: str = ""
    """Of a session that nobody has named: see `Asker`."""
    started: datetime = field(factory=lambda: datetime.now(UTC))
    began: float = field(factory=time.monotonic)
    """Of the monotonic clock, seconds."""
    last: float = field(factory=time.monotonic)
    """When something last happened, likewise."""
    task_id: str | None = None
    """As the agent names it."""
    task: Task | None = None
    rollout: int = 0
    first: tuple[Message, ...] = field(default=(), repr=False)
    """The conversation of its first request."""
    rewriting: Rewriting | None = field(default=None, repr=False)
    n_heads: int = 0
    """Those that the journal has of what `rewriting` has rewritten."""
    conversation: Turns = field(factory=Turns)
    feedback: list[Feedback] = field(factory=list)
    sampling: list[dict[str, Any]] = field(factory=list)
    """What requests say of how to sample, each once."""
    sampled: list[int] = field(factory=list)
    """For each turn, which of these holds."""
    broken: list[Broken] = field(factory=list)
    left_out: Counter[str] = field(factory=Counter)
    """Requests that are not recorded, by reason."""
    apis: set[str] = field(factory=set)
    secrets: set[str] = field(factory=set, repr=False)
    """The keys of its requests: in memory alone, to be masked where a message has one."""
    running: dict[Exchange, None] = field(factory=dict, repr=False)
    unwritten: tuple[Entry, ...] = field(default=(), repr=False)
    """What is written to the journal with the next entry."""
    assignment: Assignment | None = None
    """Of a task that was assigned through the bridge: it does not end by itself."""

    @property
    def is_empty(self) -> bool:
        """True if no answer was recorded."""
        return not len(self.conversation)

    def record(self, exchange: Exchange, *, processed: bool) -> Iterator[Entry]:
        """Make a turn of an answer; one that can't be recorded is counted.

        Yields:
            what has happened, for the journal.
        """
        exchange.recorded = True
        n, changed = len(self.conversation), list[int]()
        answers = exchange.answers(turn=n, processed=processed)
        reason = exchange.left_out or UNFINISHED
        if answers and exchange.asked is not None:
            try:
                spent = exchange.duration_s
                changed = self.conversation.add(exchange.messages, exchange.asked, answers, spent)
            except UnreadableError as error:
                reason = f"the request can't be recorded: {error}"
        if not changed:
            yield self._leave_out(exchange, reason)
            return
        self.apis.add(exchange.api.name)
        new = self._sampled(exchange.sampling, len(answers))
        for number in changed:
            turn, after = self.conversation.raw(number)
            entry = Entry(number=number, turn=turn, after=_told(number, after))
            if number >= n:
                entry.api, entry.response = exchange.api.name, answers[number - n].id
                entry.sampled = self.sampled[number]
            if number == n:
                entry.sampling = new
                self._rewritten(entry)
            yield entry

    def _leave_out(self, exchange: Exchange, reason: str) -> Entry:
        self.left_out[reason] += 1
        message = exchange.so_far()
        if message is None:
            return Entry(left_out=reason)
        broken = Broken(reason=reason, turns=len(self.conversation), message=message)
        self.broken.append(broken)
        return Entry(left_out=reason, broken=broken)

    def _sampled(self, fields: dict[str, Any], n_turns: int) -> dict[str, Any] | None:
        """Keep how turns were sampled; the fields, if none before has the same."""
        known = fields in self.sampling
        if not known:
            self.sampling.append(fields)
        self.sampled += [self.sampling.index(fields)] * n_turns
        return None if known else fields

    def _rewritten(self, entry: Entry) -> None:
        if self.rewriting is None:
            return
        entry.facts = self.rewriting.facts if entry.number == 0 else []
        entry.heads = [*self.rewriting.heads.items()][self.n_heads :]
        self.n_heads += len(entry.heads)

    def again(self) -> None:
        """Begin anew, for another worker: what was asked for the one before is not its own."""
        self.conversation, self.apis, self.left_out = Turns(), set(), Counter()
        self.sampling, self.sampled, self.broken = [], [], []


def _told(number: int, after: int | None) -> int:
    return -1 if after is None or after == number - 1 else after
