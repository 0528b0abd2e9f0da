"""One request, from admission to its last token."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from random import Random

from attrs import Factory, define, field, frozen

from ale_llm_policy.sampling import Draw


@frozen(kw_only=True)
class Rules:
    """How an answer is sampled and when it ends."""

    temperature: float
    top_p: float
    max_tokens: int
    """At least 1; no more than the context leaves."""
    ends: frozenset[int]
    """Ids that end the answer, and belong to it."""
    stop: tuple[str, ...] = ()


@frozen
class Outcome:
    """How a job ended. `stop_at` is where in the text the stop string starts."""

    reason: str
    """``stop``, ``length`` or ``forced``."""
    stop_at: int | None = None


@define(eq=False)
class Job:
    """A request in the engine. Only the engine's thread touches it after `Engine.submit`."""

    prompt: tuple[int, ...]
    rules: Rules
    random: Random
    done: Callable[["Job", Outcome | Exception], None]
    """Called once in the engine's thread, never after a cancellation."""
    forced: tuple[int, ...] = ()
    """Ids to score in the place of sampling."""
    cancelled: bool = False
    ids: list[int] = field(init=False)
    """Prompt and answer so far."""
    cached: int = field(default=0, init=False)
    """Tokens whose keys and values are in the job's row."""
    logprobs: list[float] = field(default=Factory(list), init=False)
    versions: list[int] = field(default=Factory(list), init=False)

    def __attrs_post_init__(self) -> None:
        self.ids = [*self.prompt, *self.forced]

    @property
    def output(self) -> tuple[int, ...]:
        """The answer's ids so far."""
        return tuple(self.ids[len(self.prompt) :])

    def draw(self) -> Draw:
        """The next token's number; asked once for each token."""
        return Draw(
            temperature=self.rules.temperature,
            top_p=self.rules.top_p,
            uniform=self.random.random(),
        )

    def add(self, token: int, logprob: float, version: int) -> None:
        """Take a token that was drawn."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)

    def outcome(self, text: Callable[[list[int]], str]) -> Outcome | None:
        """How the job has ended, or None while it goes on.

        Args:
            text: of some ids.
        """
        if self.ids[-1] in self.rules.ends:
            return Outcome("stop")
        if self.rules.stop:
            at = self._stop_at(text)
            if at is not None:
                return Outcome("stop", at)
        return Outcome("length") if len(self.logprobs) >= self.rules.max_tokens else None

    def _stop_at(self, text: Callable[[list[int]], str]) -> int | None:
        # A stop string may begin inside one token and end inside another: look at as many of the
        # last tokens as it could reach over, each of which has at least one byte, and four more
        # for a character that starts before them.
        reach = max(len(stop.encode()) for stop in self.rules.stop) + 4
        begin = max(len(self.prompt), len(self.ids) - reach)
        recent = text(self.ids[begin:])
        if not any(stop in recent for stop in self.rules.stop):
            return None
        return _first(self.rules.stop, text(self.ids[len(self.prompt) :]))


def up_to_stop(
    ids: Sequence[int], stop: tuple[str, ...], text: Callable[[Sequence[int]], str]
) -> tuple[tuple[int, ...], int | None]:
    """As much of an answer as the sampler would come to: it ends with the token that completes a
    stop string. With it, where in the text that string starts.
    """
    if _first(stop, text(ids)) is None:
        return tuple(ids), None
    n = bisect_left(range(len(ids)), True, key=lambda n: _first(stop, text(ids[:n])) is not None)
    return tuple(ids[:n]), _first(stop, text(ids[:n]))


def _first(stop: tuple[str, ...], text: str) -> int | None:
    found = [at for each in stop if (at := text.find(each)) >= 0]
    return min(found) if found else None
