"""Exact tests of paired differences, and their correction where there are several."""

from collections.abc import Sequence

LEVEL = 0.05
"""A p of at most this is called significant."""
_SCALE = 10**9
_MOST_SUMS = 1 << 20
"""Different sums that are counted; shares of successes have far fewer, even of many pairs."""


def sign_flip(differences: Sequence[float]) -> float:
    """Two-sided p of paired differences, by all choices of their signs.

    Where two things do not differ, each difference is as likely to be positive as negative. p is
    the share of the 2^n choices of signs whose sum is at least as far from 0 as the one found.

    Args:
        differences: one per pair; rounded to nine decimals.

    Returns:
        In (0, 1]; 1 for no differences.

    Raises:
        ValueError: there are more than 2^20 different sums.

    Source: Fisher (1935), The Design of Experiments, section 21; Pitman (1937), Significance tests
    which may be applied to samples from any populations, J. R. Stat. Soc. Suppl. 4.
    """
    signed = [round(difference * _SCALE) for difference in differences]
    ways = {0: 1}
    for size in map(abs, signed):
        following: dict[int, int] = {}
        for total, n in ways.items():
            for moved in (total + size, total - size):
                following[moved] = following.get(moved, 0) + n
        if len(following) > _MOST_SUMS:
            raise ValueError(f"too many different sums of {len(differences)} differences")
        ways = following
    # Each difference may be rounded up or down.
    found = abs(sum(signed)) - len(signed)
    return sum(n for total, n in ways.items() if abs(total) >= found) / (1 << len(signed))


def least_p(n: int) -> float:
    """The smallest p of `sign_flip` for n differences that are not 0: all signs equal."""
    return min(1.0, 2.0 / (1 << n))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Each p corrected for the number of tests: at most the level where the test is significant.

    Of m tests the smallest p is multiplied by m, the next one by m - 1, and so on; none is less
    than the one before, nor above 1.

    Args:
        p_values: of tests of one family, in any order.

    Returns:
        As many, in the same order.

    Source: Holm (1979), A simple sequentially rejective multiple test procedure, Scand. J. Stat. 6.
    """
    corrected = [1.0] * len(p_values)
    least = 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, p_values[number] * (len(p_values) - rank)))
        corrected[number] = least
    return tuple(corrected)
