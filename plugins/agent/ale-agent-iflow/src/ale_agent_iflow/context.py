"""The conversation with a model, its length, and its compaction. Pure functions.

A conversation is a head (system and task), which is never shortened, and exchanges: an answer with
its observations. An exchange is the unit of compaction, so a call is never separated from its
result. Compaction removes, in this order: old observations, old exchanges (replaced by one line
for each call), and only where that is not enough, the same of the latest exchanges.
"""

import json
import math
from collections.abc import Callable, Iterator
from itertools import chain

from attrs import evolve, field, frozen

from ale.types import Completion, Message, Observation, ToolCall, ToolSpec, Usage, replace
from ale_agent_iflow.result import cut_middle

BYTES_A_TOKEN = 4
TOKENS_A_MESSAGE = 4
"""Approximate overhead of a chat template."""
TRIMS = (2048, 512)
"""Bytes to which the observations of the latest exchanges are cut as the last resort."""

DIGEST = (
    "[Earlier steps are left out here to save space. Their effects remain. The calls were:\n{}\n]"
)


@frozen(kw_only=True)
class Exchange:
    """One answer and its observations."""

    answer: Message
    calls: tuple[ToolCall, ...] = ()
    """Those of the answer, natively or in its text."""
    observations: tuple[Observation, ...] = ()
    reminder: tuple[Message, ...] = ()
    """The message that follows an answer without a call."""
    messages: tuple[Message, ...] = field(init=False, eq=False, repr=False)
    """As sent. Built once, though every later request sends it again."""

    @messages.default
    def _messages(self) -> tuple[Message, ...]:
        return (self.answer, *(o.as_message() for o in self.observations), *self.reminder)

    def trimmed(self, max_bytes: int) -> "Exchange":
        """With observations cut in the middle."""
        return self._with(lambda o: cut_middle(o.content, max_bytes)[0])

    def shrunk(self) -> "Exchange":
        """With observations as short as can be, and without the reasoning behind the answer."""
        bare = evolve(self, answer=replace(self.answer, reasoning=None))
        return bare._with(_left_out)

    def _with(self, content: Callable[[Observation], str]) -> "Exchange":
        new = []
        for observation in self.observations:
            text = content(observation)
            shorter = len(text) < len(observation.content)
            new.append(replace(observation, content=text) if shorter else observation)
        return evolve(self, observations=tuple(new))

    def facts(self) -> tuple[str, ...]:
        """One line for each call."""
        pairs = zip(self.calls, self.observations, strict=True)
        return tuple(f"- {_what(call)} -> {_outcome(observation)}" for call, observation in pairs)


@frozen(kw_only=True)
class History:
    """A conversation so far."""

    head: tuple[Message, ...]
    """System and task; the last one also carries the digest."""
    digest: tuple[str, ...] = ()
    """A line for each call of the removed exchanges."""
    exchanges: tuple[Exchange, ...] = ()
    messages: tuple[Message, ...] = field(init=False, eq=False, repr=False)
    """As the next request sends it."""

    @messages.default
    def _messages(self) -> tuple[Message, ...]:
        rest = chain.from_iterable(exchange.messages for exchange in self.exchanges)
        return (*self._head(), *rest)

    def add(self, exchange: Exchange) -> "History":
        """With one more exchange."""
        return evolve(self, exchanges=(*self.exchanges, exchange))

    def _head(self) -> tuple[Message, ...]:
        if not self.digest:
            return self.head
        # Part of the task's message, not one of its own: many chat templates refuse two messages
        # of one role in a row.
        *first, task = self.head
        text = DIGEST.format("\n".join(self.digest))
        return (*first, replace(task, content=f"{task.content}\n\n{text}"))


@frozen(kw_only=True)
class Gauge:
    """Tokens of a conversation: the provider's count as far as it goes, then bytes / 4.

    `scale` is provider's count over bytes / 4, of the last request: a compacted conversation, which
    the provider has not counted yet, is estimated with it.
    """

    tools: int = 0
    """Tokens of the tool specifications, by bytes."""
    scale: float = 1.0
    usage: Usage | None = None
    """What the provider counted for `sent` and its answer; None for a conversation that it has not
    seen."""
    sent: tuple[Message, ...] = field(default=(), repr=False)

    @classmethod
    def of_tools(cls, specs: tuple[ToolSpec, ...]) -> "Gauge":
        """For requests with these tools."""
        texts = (s.name + s.description + json.dumps(dict(s.parameters)) for s in specs)
        return cls(tools=math.ceil(sum(len(text.encode()) for text in texts) / BYTES_A_TOKEN))

    def size(self, messages: tuple[Message, ...]) -> int:
        """Approximate tokens of a conversation that continues the counted one."""
        if self.usage is not None:
            new = messages[len(self.sent) + 1 :]
            return self.usage.prompt_tokens + self.usage.completion_tokens + rough_tokens(new)
        return math.ceil(self.scale * (self.tools + rough_tokens(messages)))

    def after(self, sent: tuple[Message, ...], completion: Completion) -> "Gauge":
        """Updated with the provider's count, if it gave one."""
        if completion.usage.prompt_tokens <= 0:
            return self.anew()
        return evolve(self, usage=completion.usage, sent=sent)

    def anew(self) -> "Gauge":
        """For a conversation that does not start with the counted one."""
        if self.usage is None:
            return self
        scale = self.usage.prompt_tokens / max(1, self.tools + rough_tokens(self.sent))
        # No tokeniser is outside this range; a provider's wrong count must not exceed it.
        return Gauge(tools=self.tools, scale=min(4.0, max(0.5, scale)))


def rough_tokens(messages: tuple[Message, ...]) -> int:
    """Tokens by bytes alone."""
    n_bytes = sum(_bytes(message) for message in messages)
    return math.ceil(n_bytes / BYTES_A_TOKEN) + TOKENS_A_MESSAGE * len(messages)


def _bytes(message: Message) -> int:
    calls = (call.name + call.arguments for call in message.tool_calls)
    texts = (message.content, message.reasoning or "", *calls)
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def compact(
    history: History,
    size: Callable[[tuple[Message, ...]], int],
    *,
    limit: int,
    target: int,
    keep: int,
) -> History | None:
    """A shorter form of `history`, compacted no more than needed.

    Args:
        size: tokens of a conversation.
        limit: tokens that the result must not pass.
        target: tokens to aim at by compacting old exchanges, at most `limit`.
        keep: latest exchanges that stay whole as long as compacting the others suffices.

    Returns:
        the compacted history; None where head and tools alone pass the limit.
    """
    compacted = history
    for compacted in _gentle(history, len(history.exchanges) - keep, digest_bytes=limit):
        if size(compacted.messages) <= target:
            return compacted
    fits = (h for h in (compacted, *_harsh(compacted, limit)) if size(h.messages) <= limit)
    return next(fits, None)


def _gentle(history: History, n_old: int, *, digest_bytes: int) -> Iterator[History]:
    """Shrink the old exchanges, then digest them, oldest first."""
    for i in range(n_old):
        new = history.exchanges[i].shrunk()
        rest = history.exchanges
        history = evolve(history, exchanges=(*rest[:i], new, *rest[i + 1 :]))
        yield history
    for _ in range(n_old):
        history = _digest_oldest(history, digest_bytes)
        yield history


def _harsh(history: History, digest_bytes: int) -> Iterator[History]:
    """Trim all that is left, then shrink it, then digest it, then drop the digest."""
    for max_bytes in TRIMS:
        trimmed = tuple(exchange.trimmed(max_bytes) for exchange in history.exchanges)
        history = evolve(history, exchanges=trimmed)
        yield history
    yield from _gentle(history, len(history.exchanges), digest_bytes=digest_bytes)
    yield evolve(history, digest=(), exchanges=())


def _digest_oldest(history: History, max_bytes: int) -> History:
    first, *rest = history.exchanges
    lines = [*history.digest, *first.facts()]
    # `max_bytes` is the limit in tokens, read as bytes: a quarter of the conversation.
    while lines and sum(len(line.encode()) + 1 for line in lines) > max_bytes:
        lines.pop(0)
    return evolve(history, digest=tuple(lines), exchanges=tuple(rest))


def _left_out(observation: Observation) -> str:
    text = f"[{len(observation.content.encode())} bytes left out]"
    return f"{text} [{observation.error}]" if observation.error else text


def _what(call: ToolCall) -> str:
    """The call's tool and its first argument, on one line."""
    try:
        arguments = json.loads(call.arguments or "{}", strict=False)
    except (ValueError, RecursionError):
        arguments = None
    values = list(arguments.values()) if isinstance(arguments, dict) else []
    subject = values[0] if values and isinstance(values[0], str) else ""
    return _clip(f"{call.name or 'unreadable call'} {subject}".strip(), 160)


def _outcome(observation: Observation) -> str:
    if observation.error is not None:
        return _clip(observation.error, 120)
    return "ok" if observation.exit_code is None else f"exit code {observation.exit_code}"


def _clip(text: str, length: int) -> str:
    line = " ".join(text.encode("utf-8", "backslashreplace").decode().split())
    return line if len(line) <= length else f"{line[: length - 3]}..."
