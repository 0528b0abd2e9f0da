"""How axes are scaled, and where curves lie between them."""

import re

from ale_charts import Chart, Series, draw


def chart(*ys: float, xs: tuple[float, ...] = (), **fields: object) -> str:
    made = Series(name="a", xs=xs or tuple(range(len(ys))), ys=ys)
    return draw(Chart(title="a", series=(made,), **fields))  # type: ignore[arg-type]


def test_axes_enclose_what_they_show() -> None:
    for ys in (
        (0.0, 0.0),
        (-3.0, 5.0),
        (1e-9, 2e-9),
        (7.0,),
        (1e20, 1.0),
        (-2.0, -1.0),
        (1e-30, 1e-30),
    ):
        drawn = chart(*ys)
        numbers = [float(n) for n in _points(drawn)]
        assert all(-1 <= n <= 1001 for n in numbers), (ys, numbers)


def _points(drawn: str) -> list[str]:
    (points,) = re.findall(r'class="line c0" points="([^"]*)"', drawn)
    return [number for pair in points.split() for number in pair.split(",")]


def test_rounding_noise_is_a_flat_line_with_ticks_that_differ() -> None:
    drawn = chart(1.0, 1.0000001, 1.0)
    heights = [float(n) for n in _points(drawn)[1::2]]
    assert max(heights) - min(heights) < 1
    ticks = re.findall(r'class="y"[^>]*>([^<]*)<', drawn)
    assert len({*ticks}) == len(ticks) >= 3


def test_shares_are_percent_and_steps_are_whole() -> None:
    drawn = chart(0.0, 0.5, 1.0, xs=(0, 20, 40), share=True)
    for said in (">0%<", ">100%<", ">0<", ">40<"):
        assert said in drawn
    assert ">0.5<" not in drawn
