"""Charts as data, as words and as tables."""

import pytest

from ale_figures.charts import Chart, Series, number, sparkline
from ale_figures.charts.rendering import chart_data, chart_label, chart_table, chart_title

LINE = Series(name="ipa", xs=(0, 5, 10), ys=(0.0, 0.5, 1.0))


def test_series_share_the_union_of_their_x_values() -> None:
    other = Series(name="grpo", xs=(5, 7), ys=(0.2, 0.3), colour=9)
    data = chart_data(Chart(title="Success", series=(LINE, other), share=True))
    assert data["xs"] == [0, 5, 7, 10]
    assert [series["ys"] for series in data["series"]] == [
        [0.0, 0.5, None, 1.0],
        [None, 0.2, 0.3, None],
    ]
    assert data["series"][1]["colour"] == 9


def test_a_band_has_both_bounds_and_a_curve_without_one_has_none() -> None:
    band = Series(name="a", xs=(0, 1), ys=(0.5, 0.5), low=(0.25, 0.4), high=(0.75, 1.0))
    first, second = chart_data(Chart(title="a", series=(band, LINE)))["series"]
    assert (first["low"], first["high"]) == ([0.25, 0.4, None, None], [0.75, 1.0, None, None])
    assert (second["low"], second["high"]) == (None, None)


@pytest.mark.parametrize(
    ("ys", "fields", "expected"),
    [
        ((0.0, 0.08), {"share": True}, [0.0, 0.1]),
        ((0.0, 0.3), {"share": True}, [0.0, 0.5]),
        ((0.0, 0.7), {"unit_interval": True}, [0.0, 1.0]),
        ((0.0, 0.7), {}, None),
    ],
)
def test_the_axis_of_shares_is_fixed(
    ys: tuple[float, ...], fields: dict[str, bool], expected: list[float] | None
) -> None:
    series = Series(name="a", xs=(0, 1), ys=ys)
    assert chart_data(Chart(title="a", series=(series,), **fields))["range"] == expected


@pytest.mark.parametrize(
    ("ys", "expected"),
    [((1e-3, 1.0, 1e3), True), ((1.0, 2.0, 3.0), False), ((0.0, 1.0, 1e6), False)],
)
def test_positive_values_over_many_powers_of_ten_get_a_logarithmic_axis(
    ys: tuple[float, ...], expected: bool
) -> None:
    series = Series(name="a", xs=(0, 1, 2), ys=ys)
    assert chart_data(Chart(title="a", series=(series,)))["log"] is expected


def test_the_table_has_a_row_per_x_and_shows_bounds() -> None:
    one = Series(name="ipa", xs=(0, 8), ys=(0.1, 0.2), low=(0.0, 0.1), high=(0.2, 0.3))
    two = Series(name="grpo", xs=(8,), ys=(0.5,))
    assert list(chart_table(Chart(title="Success", series=(one, two), share=True))) == [
        ["0", "10% (0% to 20%)", "-"],
        ["8", "20% (10% to 30%)", "50%"],
    ]


def test_titles_and_labels_are_words() -> None:
    assert chart_title("grad_norm") == "Gradient norm"
    assert chart_title("tokens_per_s") == "Tokens per second"
    label = chart_label(Chart(title="success", series=(LINE,), share=True, x="rollout"))
    assert label == "Success over rollouts. ipa: 0% at rollout 0, 100% at rollout 10."


@pytest.mark.parametrize(
    ("value", "share", "expected"),
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
def test_numbers_are_short(value: float, share: bool, expected: str) -> None:
    assert number(value, share) == expected


def test_a_small_curve_is_a_word_of_blocks() -> None:
    assert sparkline([0.5]) == ""
    assert sparkline([0.0, 0.5, 1.0, 2.0]) == "▁▅██"
