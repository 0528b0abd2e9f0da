"""Charts as markup: what is drawn, said and escaped."""

import json
import re
from html import unescape

import pytest

from ale_charts import Chart, Series, draw, number, sparkline

LINE = Series(name="ipa", xs=(0, 5, 10), ys=(0.0, 0.5, 1.0))


def points(markup: str) -> list[list[tuple[float, float]]]:
    """The polylines and polygons, in the box of 1000."""
    found = re.findall(r'points="([^"]+)"', markup)
    return [[tuple(map(float, pair.split(","))) for pair in each.split()] for each in found]  # type: ignore[misc]


def data(markup: str) -> list[list[object]]:
    found = re.search(r"data-curves='([^']*)'", markup)
    assert found is not None
    read: list[list[object]] = json.loads(unescape(found[1]))
    return read


def test_a_line_goes_from_corner_to_corner() -> None:
    assert points(draw(Chart(title="Success", series=(LINE,), share=True))) == [
        [(0.0, 1000.0), (500.0, 500.0), (1000.0, 0.0)]
    ]


def test_a_band_goes_along_the_upper_bound_and_back_along_the_lower() -> None:
    series = Series(name="a", xs=(0, 1), ys=(0.5, 0.5), low=(0.25, 0.5), high=(0.75, 1.0))
    band, line = points(draw(Chart(title="a", series=(series,), whole=True)))
    assert band == [(0.0, 250.0), (1000.0, 0.0), (1000.0, 500.0), (0.0, 750.0)]
    assert line == [(0.0, 500.0), (1000.0, 500.0)]


def test_who_points_at_a_curve_is_told_its_numbers_with_their_bounds() -> None:
    one = Series(name="ipa", xs=(0, 8), ys=(0.1, 0.2), low=(0.0, 0.1), high=(0.2, 0.3))
    two = Series(name="grpo", xs=(8,), ys=(0.5,), colour=9)
    chart = Chart(title="Success", series=(one, two), share=True, x="rollout")
    assert data(draw(chart)) == [
        [0.0, "rollout 0", [["c0", "ipa", "10% (0% to 20%)"]]],
        [1.0, "rollout 8", [["c0", "ipa", "20% (10% to 30%)"], ["c1 dashed", "grpo", "50%"]]],
    ]
    assert "Success over rollouts. ipa: 10% at rollout 0, 20% at rollout 8" in draw(chart)


def test_after_eight_colours_lines_are_dashed() -> None:
    made = draw(Chart(title="a", series=(Series(name="b", xs=(0, 1), ys=(0, 1), colour=10),)))
    assert '<polyline class="line c2 dashed"' in made


def test_text_is_never_markup() -> None:
    bad = "<script>'\"&"
    series = Series(name=bad, xs=(0, 1), ys=(0, 1))
    made = draw(Chart(title=f"x{bad}", series=(series, LINE), note=bad))
    assert "<script" not in made
    rows = data(made)[0][2]
    assert rows == [["c0", bad, "0"], ["c0", "ipa", "0"]]


def test_values_over_many_powers_are_drawn_by_their_logarithm() -> None:
    series = Series(name="a", xs=(0, 1, 2), ys=(1e-3, 1.0, 1e3))
    made = draw(Chart(title="a", series=(series,)))
    assert "logarithmic" in made
    ys = [y for _, y in points(made)[0]]
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.2)


@pytest.mark.parametrize(
    ("value", "share", "said"),
    [
        (0.125, True, "12.5%"),
        (1.0, True, "100%"),
        (1234.0, False, "1234"),
        (12_345.0, False, "12.3k"),
        (2.5e6, False, "2.5M"),
        (1e-5, False, "1e-5"),
        (0.0, False, "0"),
        (-0.25, False, "-0.25"),
    ],
)
def test_numbers_are_short(value: float, share: bool, said: str) -> None:
    assert number(value, share) == said


def test_a_small_curve_needs_two_points() -> None:
    assert sparkline([0.5]) == ""
    assert points(sparkline([0.0, 1.0])) == [[(0.0, 1000.0), (1000.0, 0.0)]]
