"""A request in the engine."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from random import Random

from attrs import Factory, define, field, frozen

from ale_llm_policy.sampling import Draw
from ale_servers.records import SampleReason


@frozen(kw_only=True)
class Rules:
    """How an answer is sampled and when it ends."""

    temperature: float
    top_p: float
    max_tokens: int
    """At least 1, at most what the context leaves."""
    ends: frozenset[int]
    """End-of-turn ids, which are part of the answer."""
    stop: tuple[str, ...] = ()


@define(eq=False)
class Job:
    """A request in the engine. Only the engine's thread touches it after `Engine.submit`."""

    prompt: tuple[int, ...]
    rules: Rules
    random: Random
    done: Callable[["Job", SampleReason | Exception], None]
    """Called once in the engine's thread."""
    forced: tuple[int, ...] = ()
    """Ids to score instead of sampling."""
    begun: tuple[int, ...] = ()
    """The beginning of the answer, sampled by an earlier job that was interrupted."""
    cancelled: bool = False
    """Set by anyone: the row is freed before the next step, and `done` is not called."""
    ids: list[int] = field(init=False)
    """Prompt and answer so far."""
    cached: int = field(default=0, init=False)
    """Number of tokens in the KV cache."""
    logprobs: list[float] = field(default=Factory(list), init=False)
    versions: list[int] = field(default=Factory(list), init=False)

    def __attrs_post_init__(self) -> None:
        self.ids = [*self.prompt, *self.begun, *self.forced]

    @property
    def output(self) -> tuple[int, ...]:
        """The ids so far of this job's part of the answer."""
        return tuple(self.ids[len(self.prompt) + len(self.begun) :])

    def draw(self) -> Draw:
        """Sampling parameters of the next token; called once per token."""
        return Draw(
            temperature=self.rules.temperature,
            top_p=self.rules.top_p,
            uniform=self.random.random(),
        )

    def add(self, token: int, logprob: float, version: int) -> None:
        """Append a sampled token."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)

    def reason(self, text: Callable[[list[int]], str]) -> SampleReason | None:
        """Why the job has ended; None while it is running.

        Args:
            text: decodes ids.
        """
        if self.ids[-1] in self.rules.ends:
            return "stop"
        if self.rules.stop and self._is_stopped(text):
            return "stop"
        return "length" if len(self.logprobs) >= self.rules.max_tokens else None

    def _is_stopped(self, text: Callable[[list[int]], str]) -> bool:
        # A stop string may start and end inside tokens. Decode only the last tokens that it can
        # span, at one byte or more per token, and four more for a character that starts earlier.
        reach = max(len(stop.encode()) for stop in self.rules.stop) + 4
        begin = max(len(self.prompt), len(self.ids) - reach)
        recent = text(self.ids[begin:])
        if not any(stop in recent for stop in self.rules.stop):
            return False
        return first_stop(self.rules.stop, text(self.ids[len(self.prompt) :])) is not None


def truncate_at_stop(
    ids: Sequence[int], stop: tuple[str, ...], text: Callable[[Sequence[int]], str]
) -> tuple[tuple[int, ...], int | None]:
    """Truncate an answer after the token that completes a stop string, as sampling does. Also
    returns the index in the text where that string starts.
    """

    def found(n: int) -> int | None:
        return first_stop(stop, text(ids[:n]))

    if found(len(ids)) is None:
        return tuple(ids), None
    n = bisect_left(range(len(ids)), True, key=lambda n: found(n) is not None)
    return tuple(ids[:n]), found(n)


def first_stop(stop: tuple[str, ...], text: str) -> int | None:
    """Where the first of some stop strings starts in a text."""
    found = [at for each in stop if (at := text.find(each)) >= 0]
    return min(found) if found else None
