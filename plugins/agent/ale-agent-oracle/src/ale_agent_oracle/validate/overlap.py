"""Tasks that nearly repeat each other, by the words of their goals."""

import string
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

_WORDS = 5
"""Words in a row that are compared."""
NEAR = 0.8
"""Share of common rows of words from which two goals are nearly the same."""
ALIKE = 0.5
"""Likewise, from which they are worth a look: one word in twenty may differ."""
_COMMON = 200
"""A row of words of more goals than this is a phrase of all of them, and says nothing."""


@frozen
class Near:
    """A goal, and another that is nearly the same."""

    task: str
    other: str
    share: float
    """Jaccard index of their rows of words without marks around them, in (0, 1]."""


def overlap(goals: Mapping[str, str], others: Mapping[str, str] | None = None) -> Sequence[Near]:
    """The nearest other for each goal, where it is at least worth a look (`ALIKE`).

    Args:
        goals: by id.
        others: to compare with; None: with each other.
    """
    within = others is None
    rows = {name: _rows(goal) for name, goal in (goals if others is None else others).items()}
    where: dict[str, list[str]] = defaultdict(list)
    for name, found in rows.items():
        for row in found:
            where[row].append(name)
    near = (_nearest(name, _rows(goal), rows, where, within) for name, goal in goals.items())
    return [each for each in near if each is not None]


def _nearest(
    name: str,
    own: frozenset[str],
    rows: Mapping[str, frozenset[str]],
    where: Mapping[str, Sequence[str]],
    within: bool,
) -> Near | None:
    seen = (where.get(row, ()) for row in own)
    shared = Counter(each for names in seen if len(names) <= _COMMON for each in names)
    if within:
        del shared[name]
    best = max(((_share(own, rows[each]), each) for each in shared), default=None)
    return None if best is None or best[0] < ALIKE else Near(name, best[1], best[0])


def _share(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b)


def _rows(goal: str) -> frozenset[str]:
    words = (word.strip(string.punctuation) or word for word in goal.casefold().split())
    return frozenset(_in_rows([*words]))


def _in_rows(words: Sequence[str]) -> Iterator[str]:
    for i in range(max(1, len(words) - _WORDS + 1)):
        yield " ".join(words[i : i + _WORDS])
