"""Why episodes broke: the same cause is told once, whatever ids and ports it names."""

import re
from collections import Counter
from collections.abc import Iterator

from ale.text import shorten
from ale.types import Episode

_WIDTH = 200
_VARYING = re.compile(r"\b[0-9a-f]{8,}\b|(?<=:)[0-9]{4,5}\b|\b[0-9]+\.[0-9]+\b")
"""Ids, ports and seconds: they differ where the cause is the same; a status does not."""


class Causes:
    """Counts the causes of broken episodes."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, tuple[str, str]] = {}

    def add(self, episode: Episode) -> None:
        """Count an episode, where it broke."""
        if episode.failure is None:
            return
        said = f"{episode.failure.stage}: {shorten(episode.failure.message, _WIDTH)}"
        cause = _VARYING.sub("*", said)
        self._counts[cause] += 1
        self._first.setdefault(cause, (said, episode.id))

    def common(self, number: int) -> Iterator[tuple[int, str, str]]:
        """The most common: how often, what was said the first time, and by which episode."""
        for cause, count in self._counts.most_common(number):
            yield (count, *self._first[cause])

    def others(self, number: int) -> int:
        """How many episodes broke for none of the `number` most common causes."""
        return self._counts.total() - sum(n for _, n in self._counts.most_common(number))
