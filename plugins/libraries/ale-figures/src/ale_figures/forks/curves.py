"""Success before and after each turn of an expert, and which turns are crucial forks.

Chunk f is crucial if success from before it is significantly lower than from after it
(arXiv:2512.24873, 3.2.4.4), and harmful if it is higher. The paper names no test; the one here is
Fisher's exact test, one-sided, in each direction by itself.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from attrs import field, frozen

from ale.intervals import wilson
from ale.runs import SUCCESS
from ale.types import Episode, Turn
from ale_figures.forks.places import place_named
from ale_figures.statistics import holm

LEVEL = 0.05


@frozen(kw_only=True)
class Point:
    """Rollouts that started after the first `p` turns of an expert."""

    p: int
    successes: int
    trials: int

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% Wilson interval: see `ale.intervals.wilson`."""
        return wilson(self.successes, self.trials)


@frozen(kw_only=True)
class Fork:
    """The turns between two neighbouring starts."""

    before: Point
    after: Point
    p_value: float
    """One-sided, for equal success before and after; not yet corrected."""
    crucial: bool
    """Significant after correction for all forks of the curve."""
    p_harm: float = 1.0
    """Likewise, for success that is lower after than before."""
    harmful: bool = False
    """`p_harm` is significant after correction for all forks of the curve."""

    @property
    def turns(self) -> range:
        """The expert's turns in this fork, 0-based."""
        return range(self.before.p, self.after.p)


@frozen(kw_only=True)
class Curve:
    """Success from the starts along one expert's episode."""

    task_id: str
    tag: str
    """Identifies the expert: see `Place.tag`."""
    turns: int
    """K, the turns of the expert's whole episode."""
    points: tuple[Point, ...]
    """In order of p. The point at p = 0 is shared by all experts of a task."""
    forks: tuple[Fork, ...]
    """One between every two points."""
    replayed: Mapping[int, str] = field(factory=dict)
    """Text and calls of each replayed turn of the expert, from turn 0."""


@frozen(kw_only=True)
class Curves:
    """Success of the episodes of a run by their starts."""

    curves: tuple[Curve, ...]
    """Ordered by task, then by expert."""
    beginnings: Mapping[str, Point]
    """The point of each task's own beginning, whether or not the task has a curve."""
    other: int
    """Graded episodes left out, as their start is not a place in an expert's episode."""

    def replayed(self, task_id: str, start: str) -> tuple[Fork, ...]:
        """The forks of the turns that an episode with this start replayed, in order."""
        place = place_named(start)
        if place is None:
            return ()
        key = (task_id, place.tag, place.turns)
        found = [curve for curve in self.curves if (curve.task_id, curve.tag, curve.turns) == key]
        return tuple(f for curve in found for f in curve.forks if f.after.p <= place.p)


def curves(episodes: Iterable[Episode], *, since: int = 0, level: float = LEVEL) -> Curves:
    """Success from every start of a run. Pure; looks at each episode once.

    Args:
        since: first training step that counts.
        level: as for `Counts.curves`.
    """
    counts = Counts()
    for episode in episodes:
        if episode.step >= since:
            counts.add(episode)
    return counts.curves(level)


class Counts:
    """Running sums over episodes, of which only one needs to be in memory at a time.

    Counts are pooled over steps, and thus over versions of the policy.
    """

    def __init__(self) -> None:
        self._beginnings: dict[str, list[bool]] = defaultdict(list)
        self._places: dict[tuple[str, str, int], dict[int, list[bool]]] = {}
        self._replayed: dict[tuple[str, str, int], dict[int, str]] = defaultdict(dict)
        self._other = 0

    def add(self, episode: Episode) -> None:
        """Count an episode. Broken ones and those of evaluations are left out."""
        if episode.split != "train" or episode.reward is None:
            return
        won = episode.reward == SUCCESS
        if episode.start == "":
            self._beginnings[episode.task_id].append(won)
            return
        place = place_named(episode.start)
        if place is None:
            self._other += 1
            return
        key = (episode.task_id, place.tag, place.turns)
        self._places.setdefault(key, defaultdict(list))[place.p].append(won)
        for number, turn in enumerate(episode.trajectory.turns[: place.p]):
            self._replayed[key].setdefault(number, _text_of(turn))

    def curves(self, level: float = LEVEL) -> Curves:
        """The curves of the episodes counted so far.

        Args:
            level: significance level over all forks of one curve (Holm's correction), in (0, 1).
        """
        first = {task_id: _point(0, all_) for task_id, all_ in sorted(self._beginnings.items())}
        made = []
        for key, places in sorted(self._places.items()):
            task_id, tag, turns = key
            points = [_point(p, won) for p, won in sorted(places.items())]
            points = [*([first[task_id]] if task_id in first else []), *points]
            forks = _forks(points, level)
            curve = Curve(
                task_id=task_id,
                tag=tag,
                turns=turns,
                points=tuple(points),
                forks=forks,
                replayed=self._replayed[key],
            )
            made.append(curve)
        return Curves(curves=tuple(made), beginnings=first, other=self._other)


def _point(p: int, won: Sequence[bool]) -> Point:
    return Point(p=p, successes=sum(won), trials=len(won))


def _text_of(turn: Turn) -> str:
    message = turn.completion.message
    calls = [f"{call.name} {call.arguments}" for call in message.tool_calls]
    return " ".join(part for part in (message.content, *calls) if part)


def _forks(points: Sequence[Point], level: float) -> tuple[Fork, ...]:
    pairs = list(itertools.pairwise(points))
    found = [
        fisher(before.successes, before.trials, after.successes, after.trials)
        for before, after in pairs
    ]
    harm = [
        fisher(after.successes, after.trials, before.successes, before.trials)
        for before, after in pairs
    ]
    crucial, harmful = (
        [p <= level for p in holm(p_values)] if p_values else [] for p_values in (found, harm)
    )
    columns = zip(pairs, found, crucial, harm, harmful, strict=True)
    return tuple(
        Fork(
            before=before,
            after=after,
            p_value=p_value,
            crucial=is_crucial,
            p_harm=p_harm,
            harmful=is_harmful,
        )
        for (before, after), p_value, is_crucial, p_harm, is_harmful in columns
    )


def fisher(won_before: int, n_before: int, won_after: int, n_after: int) -> float:
    """The probability of so few successes before, if success before and after were equally likely.

    One-sided: P(X <= won_before) where X, given all successes, is hypergeometric.

    Args:
        won_before, won_after: successes.
        n_before, n_after: trials, at least 1 each.

    Returns:
        The p-value, in (0, 1].

    Source: Fisher (1935), The Design of Experiments, chapter 2 (the exact test).
    """
    won, n = won_before + won_after, n_before + n_after
    least = max(0, won - n_after)
    whole = _log_choose(n, won)
    terms = (
        math.exp(_log_choose(n_before, x) + _log_choose(n_after, won - x) - whole)
        for x in range(least, won_before + 1)
    )
    return min(1.0, math.fsum(terms))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
