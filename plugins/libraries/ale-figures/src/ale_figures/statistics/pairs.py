"""Exact tests of paired differences, and their correction where there are several."""

import math
from collections.abc import Sequence

LEVEL = 0.05
"""A p of at most this is called significant."""
_DECIMALS = 9
_MOST_SUMS = 1 << 14
"""Different sums that are counted; shares of successes have far fewer, even of many pairs."""


def sign_flip(differences: Sequence[float]) -> float:
    """Two-sided p of paired differences, by all choices of their signs.

    Where two things do not differ, each difference is as likely to be positive as negative. p is
    the share of the 2^n choices of signs whose sum is at least as far from 0 as the one found.

    Args:
        differences: one per pair; rounded to nine decimals. Where that leaves more than 2^14
            different sums, they are rounded to 1/16384 of the sum of their sizes, and p is rounded
            up by less than 0.01.

    Returns:
        In (0, 1]; 1 for no differences.

    Source: Fisher (1935), The Design of Experiments, section 21; Pitman (1937), Significance tests
    which may be applied to samples from any populations, J. R. Stat. Soc. Suppl. 4.
    """
    fine = [round(difference * 10**_DECIMALS) for difference in differences]
    # Each difference may have been rounded up or down.
    p = _share(fine, slack=len(fine))
    if p is not None:
        return p
    unit = sum(map(abs, fine)) / _MOST_SUMS
    coarse = [round(difference / unit) for difference in fine]
    # Errors of rounding are independent: 3.5 standard deviations of their sum, sqrt(n / 12).
    p = _share(coarse, slack=math.isqrt(len(coarse)) + 1, most=2 * _MOST_SUMS + len(coarse))
    assert p is not None, "sums of whole numbers within these bounds"
    return p


def _share(signed: Sequence[int], slack: int, most: int = _MOST_SUMS) -> float | None:
    """Share of the choices of signs with a sum as far from 0; None where too many sums differ."""
    shares = {0: 1.0}
    for size in map(abs, signed):
        following: dict[int, float] = {}
        for total, share in shares.items():
            for moved in (total + size, total - size):
                following[moved] = following.get(moved, 0.0) + share / 2
        if len(following) > most:
            return None
        shares = following
    found = abs(sum(signed)) - slack
    return min(1.0, math.fsum(share for total, share in shares.items() if abs(total) >= found))


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
