"""Areas against manually computed numbers."""

import math

import pytest

from ale_ablate.area import area


def test_an_area_is_the_mean_height_by_trapezoids() -> None:
    """From 0 to 10 a triangle of height 1 (area 5), then to 20 a flat 1 (area 10): 15 / 20."""
    assert area([(0, 0.0), (10, 1.0), (20, 1.0)]) == pytest.approx(0.75)
    assert area([(0, 0.0), (1, 1.0)]) == 0.5
    assert area([(7, 0.3)]) == 0.3
    assert area([]) is None
    assert not math.isnan(area([(3, 0.2), (3, 0.4)]) or 0.0)
