"""Monte-Carlo values of the states of stored episodes, and how well credit agrees with them.

V of a state is the success rate of rollouts of a fixed policy from it. The worth of a chunk is V
after it minus V before it. `ale data values` measures V before each turn of an episode and after
its last one, and stores counts; everything here is computed from these counts alone.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import TypeVar

import msgspec
from attrs import field, frozen

from ale._store.codec import encode
from ale.errors import InputError
from ale.files import open_file, replacing
from ale.types import Chunk, Credit, Rollout

NAME = "values.jsonl"
"""The file in a run directory."""
NEGLIGIBLE = 0.05
"""A chunk whose measured worth is nearer to 0 counts as worth nothing."""
_RESAMPLES = 400
T = TypeVar("T")


@frozen(kw_only=True)
class Measured:
    """How the values of a file were measured: its first line."""

    schema: int = 1
    rollouts: int
    """From each state."""
    policy: str
    """SHA-256 of the weights and the configuration of the model."""
    tokenizer: str
    """SHA-256 of its tokenizer; empty if it has no file of its own."""
    sandbox: str
    """SHA-256 of the sandbox's options and of what it isolates."""


@frozen(kw_only=True)
class EpisodeValues:
    """The states of an episode of K turns: K + 1 of each, from before its first turn."""

    episode_id: str
    task_id: str
    states: tuple[str, ...]
    """Name of each state; episodes of a task that begin alike share states, and their rollouts."""
    successes: tuple[int, ...]
    trials: tuple[int, ...]
    """Rollouts from the state; 1 after the last turn, whose outcome is certain."""


@frozen(kw_only=True)
class Values:
    """The contents of a file."""

    measured: Measured
    episodes: Mapping[str, EpisodeValues] = field(repr=False)
    """By id."""


def read_values(path: Path) -> Values:
    """Read a file of values.

    Raises:
        InputError: it is missing or damaged.
    """
    try:
        with open_file(path) as file:
            lines = file.read().splitlines()
    except OSError as error:
        message = f"can't be read: {error.strerror}"
        hint = "ale data values RUN measures the values of a run"
        raise InputError.of(message, file=str(path), hint=hint) from error
    found: dict[str, EpisodeValues] = {}
    for number, line in enumerate(lines[1:], 2):
        each = _decoded(line, EpisodeValues, path, number)
        if not len(each.states) == len(each.successes) == len(each.trials) >= 2:
            raise _damaged(path, number, "not one count for each of its states")
        if any(
            not 0 <= won <= n or n < 1 for won, n in zip(each.successes, each.trials, strict=True)
        ):
            raise _damaged(path, number, "more successes than trials, or no trial")
        found[each.episode_id] = each
    if not lines:
        raise _damaged(path, 1, "it is empty")
    return Values(measured=_decoded(lines[0], Measured, path, 1), episodes=found)


def _decoded(line: bytes, cls: type[T], path: Path, number: int) -> T:
    try:
        return msgspec.json.decode(line, type=cls)
    except msgspec.MsgspecError as error:
        raise _damaged(path, number, str(error)) from error


def _damaged(path: Path, line: int, why: str) -> InputError:
    return InputError.of(f"no line of values: {why}", file=str(path), line=line)


def write_values(path: Path, values: Values) -> None:
    """Write a file of values atomically; raises `OSError`."""
    lines = [values.measured, *values.episodes.values()]
    with replacing(path, sync=True) as partial:
        partial.write_bytes(b"".join(encode(line) + b"\n" for line in lines))


Rates = Mapping[tuple[str, str], float]
"""V by task and state."""


def rates(values: Values) -> Rates:
    """V of every state, from all of its rollouts."""
    return {state: won / n for state, (won, n) in _counts(values).items()}


def halves(values: Values, seed: int) -> tuple[Rates, Rates]:
    """V of every state from a random half of its rollouts, and from the other half.

    A state with one trial is certain, and is the same in both. The counts say all: how many of the
    successes are in a half is hypergeometric.
    """
    rng = random.Random(seed)  # noqa: S311 - not a secret
    one: dict[tuple[str, str], float] = {}
    other: dict[tuple[str, str], float] = {}
    for state, (won, n) in sorted(_counts(values).items()):
        if n == 1:
            one[state] = other[state] = float(won)
            continue
        half = n // 2
        first = sum(number < won for number in rng.sample(range(n), half))
        one[state], other[state] = first / half, (won - first) / (n - half)
    return one, other


def _counts(values: Values) -> dict[tuple[str, str], tuple[int, int]]:
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for each in values.episodes.values():
        for state, won, n in zip(each.states, each.successes, each.trials, strict=True):
            found[each.task_id, state] = (won, n)
    return found


def edges(chunks: Sequence[Chunk], n_turns: int) -> list[int]:
    """The turn before which each chunk begins, and the end of the last one: K + 1 numbers.

    Raises:
        InputError: a chunk begins within a turn, where no value was measured.
    """
    firsts = [chunk.spans[0].turn if chunk.spans else n_turns for chunk in chunks]
    lasts = [chunk.spans[-1].turn for chunk in chunks if chunk.spans]
    if any(last >= first for last, first in zip(lasts, firsts[1:], strict=False)):
        raise InputError.of(
            "a chunk begins within a turn, and values are those of the states between turns",
            path="--chunker",
            expected="a chunker of whole turns, such as interaction or turn",
        )
    return [*firsts, n_turns]


def worths(each: EpisodeValues, chunks: Sequence[Chunk], v: Rates) -> tuple[float, ...]:
    """V after each chunk minus V before it. Raises as `edges`."""
    along = [v[each.task_id, state] for state in each.states]
    return tuple(along[b] - along[a] for a, b in pairwise(edges(chunks, len(along) - 1)))


@frozen(kw_only=True)
class Interval:
    """An estimate with its 95% interval, by bootstrap over tasks."""

    value: float
    low: float
    high: float


@frozen(kw_only=True)
class Agreement:
    """How well the weights of a scheme agree with the worth of chunks."""

    scheme: str
    pearson: Interval
    spearman: float
    sign: float
    """Share of the chunks that are worth something whose weight has the sign of their worth; a
    weight of 0 counts half."""
    order: Interval
    """Share of the pairs of chunks of one episode, of different worth, that the weights put in the
    right order; equal weights count half."""
    on_nothing: float
    """Share of the absolute weight that is on chunks worth nothing: see `NEGLIGIBLE`."""


@frozen(kw_only=True)
class Comparison:
    """Schemes against the same truth."""

    chunks: int
    episodes: int
    tasks: int
    nothing: float
    """Share of the chunks that are worth nothing."""
    ceiling: float
    """The correlation that exact credit would have with the measured worth: the square root of the
    split-half reliability (Spearman, 1904); nan if the halves do not agree at all."""
    schemes: tuple[Agreement, ...]


@frozen(kw_only=True)
class ValuedEpisode:
    """An episode with its measured values and its credit under each scheme."""

    values: EpisodeValues
    rollout: Rollout
    weights: Mapping[str, Sequence[float]]
    """The weight of each chunk, by scheme."""


Critic = Callable[[ValuedEpisode, Rates], Sequence[float]]
"""Weights of an episode's chunks from values."""


def oracle(episode: ValuedEpisode, v: Rates) -> Sequence[float]:
    """V after minus V before: the upper bound that a perfect critic would reach."""
    return worths(episode.values, episode.rollout.chunks, v)


def return_minus_value(episode: ValuedEpisode, v: Rates) -> Sequence[float]:
    """The episode's reward minus V before the chunk: a value baseline, as of GAE with lambda 1."""
    reward = episode.rollout.episode.reward or 0.0
    along = [v[episode.values.task_id, state] for state in episode.values.states]
    return [reward - along[at] for at in edges(episode.rollout.chunks, len(along) - 1)[:-1]]


CRITICS: Mapping[str, Critic] = {
    "(oracle)": oracle,
    "(return minus value)": return_minus_value,
}
"""Credit from the other half of the rollouts, for comparison."""


def compare(
    values: Values, episodes: Sequence[ValuedEpisode], *, splits: int = 10, seed: int = 0
) -> Comparison:
    """Score the weights of schemes against the measured worth of chunks.

    Every number is against the worth from half of the rollouts, averaged over `splits` random
    splits and over both halves. What knows values (`CRITICS`) gets those of the other half, so that
    it shares no rollout with the truth.

    Raises:
        InputError: there is no episode with two chunks, or as `edges`.
    """
    if not any(len(each.rollout.chunks) > 1 for each in episodes):
        message = "no episode with measured values has two chunks: nothing can be compared"
        raise InputError.of(message, path="--against")
    names = list(episodes[0].weights)
    scores: dict[str, list[_Scores]] = {name: [] for name in (*names, *CRITICS)}
    reliability: list[float] = []
    for number in range(splits):
        both = halves(values, seed + number)
        for truth, other in (both, both[::-1]):
            worth = [worths(e.values, e.rollout.chunks, truth) for e in episodes]
            against = [worths(e.values, e.rollout.chunks, other) for e in episodes]
            reliability.append(_pearson(_flat(worth), _flat(against)))
            for name in names:
                scores[name].append(_Scores(episodes, [e.weights[name] for e in episodes], worth))
            for name, critic in CRITICS.items():
                scores[name].append(_Scores(episodes, [critic(e, other) for e in episodes], worth))
    full = rates(values)
    whole = _flat([worths(e.values, e.rollout.chunks, full) for e in episodes])
    mean = _mean(reliability)
    return Comparison(
        chunks=len(whole),
        episodes=len(episodes),
        tasks=len({each.values.task_id for each in episodes}),
        nothing=_mean([float(abs(w) < NEGLIGIBLE) for w in whole]),
        ceiling=math.sqrt(mean) if mean > 0 else math.nan,
        schemes=tuple(_agreement(name, found, seed) for name, found in scores.items()),
    )


def _agreement(name: str, scores: Sequence["_Scores"], seed: int) -> Agreement:
    rng = random.Random(seed)  # noqa: S311 - not a secret
    tasks = sorted(scores[0].by_task)
    drawn = [(rng.choices(tasks, k=len(tasks)), rng.choice(scores)) for _ in range(_RESAMPLES)]

    def interval(of: Callable[["_Scores", Sequence[str]], float]) -> Interval:
        again = sorted(x for d, s in drawn if not math.isnan(x := of(s, d)))
        value = _mean([of(each, tasks) for each in scores])
        if not again:
            return Interval(value=value, low=math.nan, high=math.nan)
        low, high = (again[round(q * (len(again) - 1))] for q in (0.025, 0.975))
        return Interval(value=value, low=low, high=high)

    return Agreement(
        scheme=name,
        pearson=interval(lambda s, tasks: s.pearson(tasks)),
        spearman=_mean([each.spearman for each in scores]),
        sign=_mean([each.sign for each in scores]),
        order=interval(lambda s, tasks: s.order(tasks)),
        on_nothing=_mean([each.on_nothing for each in scores]),
    )


class _Scores:
    """One scheme against one half of the rollouts, in sums by task."""

    def __init__(
        self,
        episodes: Sequence[ValuedEpisode],
        weights: Sequence[Sequence[float]],
        worth: Sequence[Sequence[float]],
    ) -> None:
        w, d = _flat(weights), _flat(worth)
        self.spearman = _pearson(_ranks(w), _ranks(d))
        some = [_agrees(a, b) for a, b in zip(w, d, strict=True) if abs(b) >= NEGLIGIBLE]
        self.sign = _mean(some)
        total = math.fsum(map(abs, w))
        idle = math.fsum(abs(a) for a, b in zip(w, d, strict=True) if abs(b) < NEGLIGIBLE)
        self.on_nothing = idle / total if total else math.nan
        # Centred first, so that sums of squares lose no digits.
        x, y = _mean(w), _mean(d)
        self.by_task: dict[str, list[float]] = defaultdict(lambda: [0.0] * 8)
        for episode, own, earned in zip(episodes, weights, worth, strict=True):
            sums = self.by_task[episode.values.task_id]
            for a, b in zip(own, earned, strict=True):
                for i, term in enumerate(_moments(a - x, b - y)):
                    sums[i] += term
            for i, j in combinations(range(len(own)), 2):
                if earned[i] != earned[j]:
                    sums[6] += _agrees(own[i] - own[j], earned[i] - earned[j])
                    sums[7] += 1

    def pearson(self, tasks: Sequence[str]) -> float:
        """Over the chunks of these tasks, which may be named repeatedly."""
        n, a, b, aa, bb, ab = self._sums(tasks)[:6]
        spread = math.sqrt(max(0.0, aa - a * a / n) * max(0.0, bb - b * b / n)) if n else 0.0
        return (ab - a * b / n) / spread if spread > 1e-12 else math.nan

    def order(self, tasks: Sequence[str]) -> float:
        """Likewise."""
        right, pairs = self._sums(tasks)[6:]
        return right / pairs if pairs else math.nan

    def _sums(self, tasks: Sequence[str]) -> list[float]:
        return [math.fsum(column) for column in zip(*(self.by_task[t] for t in tasks), strict=True)]


def _moments(a: float, b: float) -> tuple[float, ...]:
    return 1.0, a, b, a * a, b * b, a * b


def _agrees(a: float, b: float) -> float:
    """1 if both have one sign, 0.5 if either is 0, else 0."""
    return 0.5 if a * b == 0 else float(a * b > 0)


def _flat(rows: Iterable[Sequence[float]]) -> list[float]:
    return [value for row in rows for value in row]


def _mean(found: Sequence[float]) -> float:
    """The mean of the values that are not nan; nan if none is."""
    known = [value for value in found if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _pearson(a: Sequence[float], b: Sequence[float]) -> float:
    x, y = _mean(a), _mean(b)
    spread = math.sqrt(math.fsum((i - x) ** 2 for i in a) * math.fsum((j - y) ** 2 for j in b))
    if spread <= 1e-12:
        return math.nan
    return math.fsum((i - x) * (j - y) for i, j in zip(a, b, strict=True)) / spread


def _ranks(found: Sequence[float]) -> list[float]:
    """From 0; equal values share their mean rank."""
    order = sorted(range(len(found)), key=found.__getitem__)
    ranks = [0.0] * len(found)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and found[order[end + 1]] == found[order[at]]:
            end += 1
        for place in order[at : end + 1]:
            ranks[place] = (at + end) / 2
        at = end + 1
    return ranks


def valued(
    values: Values, rollouts: Iterable[tuple[Rollout, Sequence[Credit]]], names: Sequence[str]
) -> list[ValuedEpisode]:
    """The rollouts that have measured values, with the weights of each scheme.

    Raises:
        InputError: the values of an episode are not those of its turns.
    """
    found = []
    for rollout, credits in rollouts:
        each = values.episodes.get(rollout.episode.id)
        if each is None:
            continue
        n_turns = len(rollout.episode.trajectory.turns)
        if len(each.states) != n_turns + 1:
            raise InputError.of(
                f"episode {each.episode_id} has {n_turns} turns, and values of {len(each.states)} "
                f"states: expected {n_turns + 1}",
                path="--against",
            )
        weights = {name: credit.weights for name, credit in zip(names, credits, strict=True)}
        found.append(ValuedEpisode(values=each, rollout=rollout, weights=weights))
    return found
