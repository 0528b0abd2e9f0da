"""Counts what a run spends of its budget."""

import contextlib
import functools
import importlib.util
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from attrs import define, field

from ale._config import RunConfig
from ale._config.model import Budget, Price
from ale._store import RunDirectory
from ale._store.diagnosis import model_name
from ale._store.lines import Lines
from ale.errors import Problem
from ale.text import counted
from ale.types import Episode, Usage
from ale.types._record import record

_MILLION = 1_000_000
_TABLE = "model_prices_and_context_window_backup.json"
"""A file of litellm: to import the package takes seconds."""


@record
class _Completion:
    usage: Usage = Usage()


@record
class _Turn:
    completion: _Completion = _Completion()


@record
class _Trajectory:
    turns: tuple[_Turn, ...] = ()


@record
class _Spent:
    """The fields of an episode that a budget needs."""

    id: str
    trajectory: _Trajectory = _Trajectory()
    started_at: str = ""
    seconds: Mapping[str, float] = field(factory=dict)

    @property
    def spans(self) -> tuple[float, float] | None:
        """Its start and end, in seconds since the epoch."""
        if not self.started_at:
            return None
        start = datetime.fromisoformat(self.started_at).timestamp()
        return start, start + math.fsum(self.seconds.values())


@define
class Spending:
    """Counts what a run's stored episodes have used, and compares it with the budget.

    Attempts that were not stored, and tokens that others have used (judges, summaries), are not
    counted.
    """

    budget: Budget
    price: Price | None = None
    """None unless dollars are counted."""
    episodes: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: str | None = None
    """Id of an episode with an answer whose tokens the model did not count."""
    killed_s: float = 0.0
    """Seconds of the run's processes that did not say how they ended."""
    out_of_time: bool = field(default=False, init=False)

    @property
    def usd(self) -> float:
        """US dollars for the tokens; 0 without a price."""
        if self.price is None:
            return 0.0
        read = self.prompt_tokens * self.price.prompt
        return (read + self.completion_tokens * self.price.completion) / _MILLION

    def add(self, episode: Episode | _Spent) -> None:
        """Count an episode that is stored."""
        self.episodes += 1
        for turn in episode.trajectory.turns:
            used = turn.completion.usage
            self.prompt_tokens += used.prompt_tokens
            self.completion_tokens += used.completion_tokens
            if not used.prompt_tokens and not used.completion_tokens:
                self.uncounted = self.uncounted or episode.id

    def described(self) -> str:
        """The spending, in words."""
        n, read, written = self.episodes, self.prompt_tokens, self.completion_tokens
        text = f"{counted(n, 'episode')}, {read:,} tokens read and {written:,} written"
        if self.price is None or not n:
            return text
        return f"{text}: ${self.usd:.4f}, ${self.usd / n:.4f} an episode"

    def spent(self) -> str | None:
        """The part of the budget that is spent, in words; None while something is left of all."""
        counts = self.budget.tokens is not None or self.budget.usd is not None
        if counts and self.uncounted is not None:
            return f"the model did not count the tokens of {self.uncounted}, which the budget needs"
        for name, used, most in self._used():
            if used >= most:
                return f"{_said(name, used)} of {_said(name, most)} {name}"
        return None

    def larger(self) -> str | None:
        """The option that continues a run whose budget is spent, with twice the budget."""
        for name, used, most in self._used():
            if used >= most:
                twice = 2 * max(used, most)
                return f"run.budget.{name}={twice if isinstance(twice, int) else f'{twice:.6f}'}"
        return None

    def _used(self) -> Iterator[tuple[str, float, float]]:
        """Each limit of the budget: name, what was used, and the limit."""
        hours = self.budget.hours if self.out_of_time else 0.0
        used = {
            "episodes": self.episodes,
            "tokens": self.prompt_tokens + self.completion_tokens,
            "usd": self.usd,
            "hours": hours or 0.0,
        }
        for name, number in used.items():
            most = getattr(self.budget, name)
            if most is not None:
                yield name, number, most


def _said(name: str, number: float) -> str:
    if name == "usd":
        return f"{number:.4f}"
    return f"{number:g}" if name == "hours" else f"{number:,}"


def spending_of(config: RunConfig, store: RunDirectory) -> Spending | None:
    """The spending so far, as the stored episodes say; None without a budget."""
    budget = config.run.budget
    if budget is None:
        return None
    found = Spending(budget, None if budget.usd is None else price(config))
    spans = []
    for episode in Lines(store.reader.episodes.path, _Spent):
        found.add(episode)
        if budget.hours is not None and (span := episode.spans) is not None:
            spans.append(span)
    if budget.hours is not None:
        found.killed_s = math.fsum(_killed(store.reader.events(), spans))
    return found


def _killed(
    events: Iterable[Mapping[str, Any]], spans: Sequence[tuple[float, float]]
) -> Iterator[float]:
    """The seconds of each process that was killed, as far as something was stored."""
    began: list[float] = []
    last = 0.0
    for event in [*events, {"event": "run_resumed", "at": math.inf}]:
        name, at = event["event"], event["at"]
        if name in ("run_started", "run_resumed"):
            for start in began:
                ends = (end for begun, end in spans if start <= begun < at)
                yield max([last, *ends]) - start
            began, last = [at], at
        elif name == "run_finished":
            began = []
        else:
            last = at


def price(config: RunConfig) -> Price | None:
    """The price of the model's tokens: the config's, or else that of litellm's table."""
    budget, model = config.run.budget, model_name(config.resolved)
    if budget is not None and budget.price is not None:
        return budget.price
    listed = None if model is None else _table().get(model)
    if not isinstance(listed, dict):
        return None
    read, written = (listed.get(f"{kind}_cost_per_token") for kind in ("input", "output"))
    if read is None or written is None:
        return None
    return Price(prompt=read * _MILLION, completion=written * _MILLION)


def price_problems(config: RunConfig) -> Iterator[Problem]:
    """A budget in dollars needs a price."""
    budget = config.run.budget
    if budget is None or (budget.usd is None and budget.price is None):
        return
    if budget.usd is None:
        yield Problem(
            message="a price without a budget in dollars has no effect",
            path="run.budget.price",
            expected="run.budget.usd beside it",
        )
    elif price(config) is None:
        model = model_name(config.resolved)
        named = "of the model" if model is None else f"of '{model}'"
        where = "litellm's table lacks it" if _table() else "litellm, which has a table, is missing"
        yield Problem(
            message=f"the price {named} is not known: {where}",
            path="run.budget.usd",
            expected="run.budget.price: {prompt: ..., completion: ...}, in dollars for a million "
            "tokens",
        )


@functools.cache
def _table() -> dict[str, Any]:
    found = importlib.util.find_spec("litellm")
    for folder in (found and found.submodule_search_locations) or ():
        with contextlib.suppress(OSError, ValueError):
            table = json.loads((Path(folder) / _TABLE).read_text())
            return table if isinstance(table, dict) else {}
    return {}
