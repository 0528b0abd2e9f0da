"""Do scores agree more than tasks explain, do texts, and do two scores part over time?

Each p is that of a permutation test with a fixed seed: the share of `PERMUTATIONS` random
permutations whose statistic is at least as large as the one found, itself included. It is
one-sided: only agreement, sameness and growth are looked for.
"""

import math
import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from operator import mul
from random import Random
from typing import TypeVar

from attrs import frozen

PERMUTATIONS = 1999
MOST_PAIRS = 512
"""Pairs of texts that are compared; of more, a random sample."""
_MOST_IN_BLOCK = 8
N_GRAM = 5
"""Words of an n-gram."""
_ROUNDING = 1e-9
T = TypeVar("T")


@frozen(kw_only=True)
class Statistic:
    """A statistic and its p."""

    n: int
    """How many pairs, or points in time, it is of."""
    value: float | None
    """None where it is not defined: too few, or all of them equal."""
    p: float | None
    by_chance: float | None = None
    """Its mean over the permutations."""


def correlation(
    pairs: Sequence[tuple[Hashable, float, float]], permutations: int = PERMUTATIONS
) -> Statistic:
    """Pearson's r of two scores after each group's mean is subtracted from either.

    So neither that tasks are of unequal difficulty nor that both agents learn makes anybody agree,
    if a group is of one task and step. The second score is permuted within each group.

    Args:
        pairs: group, and the two scores of one episode or of a pair of episodes. Groups with one
            pair say nothing and are left out.

    Source: Pitman (1937), Significance tests which may be applied to samples from any populations
    II, J. R. Stat. Soc. Suppl. 4.
    """
    groups = [
        (_centred([a for a, _ in found]), _centred([b for _, b in found]))
        for found in _grouped(pairs)
        if len(found) > 1
    ]
    n = sum(len(a) for a, _ in groups)
    size = math.sqrt(
        math.fsum(x * x for a, _ in groups for x in a)
        * math.fsum(y * y for _, b in groups for y in b)
    )
    if size <= _ROUNDING:
        return Statistic(n=n, value=None, p=None)

    def statistic(seconds: Sequence[Sequence[float]]) -> float:
        sums = (_product(a, b) for (a, _), b in zip(groups, seconds, strict=True))
        return math.fsum(sums) / size

    return _tested(n, [b for _, b in groups], statistic, permutations)


def overlap(
    pairs: Sequence[tuple[Hashable, frozenset[str], frozenset[str]]],
    permutations: int = PERMUTATIONS,
) -> Statistic:
    """Mean Jaccard index of the n-grams of two agents' texts.

    Compared with that of texts of the same group that were not made at the same time: which attempt
    of the second agent belongs to which of the first is permuted within each group. It takes as
    long as the sum of their squares: see `sample`.

    Args:
        pairs: group, and the n-grams of either (`n_grams`). A pair without any is left out.

    Returns:
        Without p where no group has two pairs.
    """
    groups = _grouped([each for each in pairs if each[1] or each[2]])
    n = sum(map(len, groups))
    if not n:
        return Statistic(n=0, value=None, p=None)
    tables = [[[jaccard(a, b) for _, b in found] for a, _ in found] for found in groups]

    def statistic(orders: Sequence[Sequence[int]]) -> float:
        found = (
            table[i][j]
            for table, order in zip(tables, orders, strict=True)
            for i, j in enumerate(order)
        )
        return math.fsum(found) / n

    orders = [list(range(len(table))) for table in tables]
    if max(map(len, tables)) == 1:
        return Statistic(n=n, value=statistic(orders), p=None)
    return _tested(n, orders, statistic, permutations)


def sample(
    pairs: Sequence[tuple[Hashable, T, T]], most: int = MOST_PAIRS
) -> list[tuple[int, T, T]]:
    """At most so many pairs, in blocks of a group that can be permuted within; the same each time.

    Whole blocks, as single pairs of many groups could not be compared. A large group is cut into
    several at random, as of one block every text is compared with every other.
    """
    random = Random(0)  # noqa: S311 - the same sample for the same run
    blocks = []
    for found in _grouped(pairs):
        mixed = random.sample(found, len(found))
        blocks += [mixed[i : i + _MOST_IN_BLOCK] for i in range(0, len(mixed), _MOST_IN_BLOCK)]
    random.shuffle(blocks)
    blocks.sort(key=lambda block: len(block) == 1)
    return [(i, one, other) for i, block in enumerate(blocks) for one, other in block][:most]


def trend(points: Mapping[float, Sequence[float]], permutations: int = PERMUTATIONS) -> Statistic:
    """Least-squares slope of the mean of each time over time.

    Args:
        points: time, and the values of that time.

    Returns:
        n: how many times. Without value and p for fewer than three, or if all means are equal.
    """
    times = sorted(points)
    means = [math.fsum(points[time]) / len(points[time]) for time in times]
    if len(times) < 3 or max(means) - min(means) <= _ROUNDING:
        return Statistic(n=len(times), value=None, p=None)
    centred = _centred(times)
    size = _product(centred, centred)

    def statistic(found: Sequence[Sequence[float]]) -> float:
        return _product(centred, found[0]) / size

    return _tested(len(times), [means], statistic, permutations)


def n_grams(text: str, without: Collection[str] = (), n: int = N_GRAM) -> frozenset[str]:
    """The n-grams of the words of a text; `without` those that its task gives to everybody."""
    words = re.findall(r"\w+", text.lower())
    found = (" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
    return frozenset(found) - frozenset(without)


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Share of the n-grams of either that are in both; 0 where neither has any.

    Source: Jaccard (1912), The distribution of the flora in the alpine zone, New Phytologist 11.
    """
    both = len(one & other)
    either = len(one) + len(other) - both
    return both / either if either else 0.0


def _grouped(pairs: Sequence[tuple[Hashable, T, T]]) -> list[list[tuple[T, T]]]:
    found: dict[Hashable, list[tuple[T, T]]] = {}
    for group, one, other in pairs:
        found.setdefault(group, []).append((one, other))
    return list(found.values())


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(map(mul, one, other))


def _centred(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def _tested(
    n: int,
    within: list[list[T]],
    statistic: Callable[[Sequence[Sequence[T]]], float],
    permutations: int,
) -> Statistic:
    value = statistic(within)
    random = Random(0)  # noqa: S311 - the same p for the same run
    shuffled = [[*each] for each in within]
    found = []
    for _ in range(permutations):
        for each in shuffled:
            random.shuffle(each)
        found.append(statistic(shuffled))
    centre = math.fsum(found) / permutations
    extreme = sum(each >= value - _ROUNDING for each in found)
    p = (1 + extreme) / (1 + permutations)
    return Statistic(n=n, value=value, p=p, by_chance=centre)
