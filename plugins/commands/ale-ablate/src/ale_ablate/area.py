"""The area under a curve."""

import math
from collections.abc import Sequence
from itertools import pairwise


def area(curve: Sequence[tuple[float, float]]) -> float | None:
    """Mean height of a curve over its width: the area under it by trapezoids, per unit of x.

    Args:
        curve: points (x, y) with x ascending; one point is its own height.

    Returns:
        In the unit of y; None for no points.
    """
    if not curve:
        return None
    width = curve[-1][0] - curve[0][0]
    if width == 0:
        return curve[-1][1]
    pieces = ((right - left) * (y + z) / 2 for (left, y), (right, z) in pairwise(curve))
    return math.fsum(pieces) / width
