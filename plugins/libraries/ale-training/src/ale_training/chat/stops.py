"""Stop strings in the text of sampled ids."""

from bisect import bisect_left
from collections.abc import Callable, Sequence


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
