"""Means, paired differences and tables; expected numbers are computed manually."""

import csv
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import evolve

from ale_ablate import texts
from ale_ablate.comparing import Comparison, Measure, compare
from ale_ablate.curves import charts
from ale_ablate.tables import comma_separated, markdown, runs_comma_separated, terminal
from ale_figures.statistics import Estimate, estimate

Make = Callable[..., Comparison]
SHARE = Measure(key="a", title="a", description="a", value=lambda run: None, share=True)
SECONDS = Measure(key="a", title="a", description="a", value=lambda run: None, seconds=True)
ROLLOUTS = Measure(key="a", title="a", description="a", value=lambda run: None)


def estimate_of(comparison: Comparison, row: int, measure: str) -> tuple[int, float, Any, Any]:
    found = comparison.rows[row].means[measure]
    assert found is not None
    return found.n, found.mean, found.low, found.high


def test_final_success_is_that_of_the_last_evaluation(compared: Make) -> None:
    """0.5, 0.6, 0.7: mean 0.6, s 0.1, half width 4.303 * 0.1 / sqrt(3) = 0.2484."""
    comparison = compared({"a=1": [[0.0, 0.5], [0.0, 0.6], [0.0, 0.7]]})
    n, mean, low, high = estimate_of(comparison, 0, "final_success")
    assert (n, mean) == (3, pytest.approx(0.6))
    assert (low, high) == (pytest.approx(0.3516, abs=1e-4), pytest.approx(0.8484, abs=1e-4))
    assert estimate_of(comparison, 0, "area")[1] == pytest.approx(0.3)
    assert "held-out tasks in the last evaluation" in terminal(comparison)


@pytest.mark.parametrize(
    ("temperatures", "named"),
    [
        ([(0.0, 0.3, 1.0)] * 2, "held-out tasks at temperature 1"),
        ([(0.0, None)] * 2, "held-out tasks at the model's own temperature"),
        ([(0.0, 0.5), (0.0, 1.0)], "held-out tasks at the highest temperature"),
        ([(0.0,)] * 2, "held-out tasks"),
    ],
)
def test_of_several_temperatures_the_one_that_is_compared_is_named(
    compared: Make, temperatures: Sequence[Sequence[float | None]], named: str
) -> None:
    made = compared({"a=1": [[0.1], [0.5]]})
    runs = [
        evolve(run, evaluations={each: run.held_out for each in own})
        for run, own in zip(made.runs, temperatures, strict=True)
    ]
    shown = " ".join(terminal(compare(made.grid, runs)).split())
    assert f"success on {named} in the last evaluation" in shown
    assert f"curve of success on {named}, divided" in shown


def test_without_held_out_tasks_the_last_tenth_of_the_steps_counts(compared: Make) -> None:
    curve = [0.0] * 18 + [0.4, 0.8]
    comparison = compared({"a=1": [curve, curve]}, held_out=False)
    assert estimate_of(comparison, 0, "final_success")[1] == pytest.approx(0.6)
    assert "over the last tenth of the steps" in terminal(comparison)


def test_a_difference_is_paired_by_seed(compared: Make) -> None:
    """Each seed gains 0.1 exactly, though the seeds differ by far more among themselves."""
    comparison = compared({"a=1": [[0.1], [0.5], [0.8]], "a=2": [[0.2], [0.6], [0.9]]})
    assert comparison.rows[0].differences["final_success"] is None
    found = comparison.rows[1].differences["final_success"]
    assert found is not None
    assert (found.n, found.mean) == (3, pytest.approx(0.1))
    assert (found.low, found.high) == (pytest.approx(0.1), pytest.approx(0.1))


def test_a_difference_is_over_the_seeds_that_both_have(compared: Make) -> None:
    comparison = compared({"a=1": [[0.1], [0.5], [0.9]], "a=2": [[0.3], [0.5]]})
    found = comparison.rows[1].differences["final_success"]
    assert found is not None
    assert (found.n, found.mean) == (2, pytest.approx(0.1))
    assert "2 of 3" in terminal(comparison)
    rows = {row["cell"]: row for row in csv.DictReader(comma_separated(comparison).splitlines())}
    assert rows["a=2"]["seeds"] == "0 1"


def test_a_cell_without_a_completed_run_has_no_numbers(compared: Make) -> None:
    comparison = compared({"a=1": [[0.1], [0.2]], "a=2": []})
    line = next(line for line in terminal(comparison).splitlines() if line.startswith("a=2"))
    assert line.split() == ["a=2", "0", "of", "2", "-", "-", "-", "-"]


def test_the_least_p_is_that_of_the_cell_with_the_most_pairs(compared: Make) -> None:
    comparison = compared({"a=1": [[0.1]] * 3, "a=2": [[0.2]] * 3, "a=3": [[0.3]], "a=4": []})
    text = " ".join(terminal(comparison).split())
    # Of 3 seeds p is at least 2 / 8, twice that with two tests.
    assert "for the 2 tests of this table. With 3 seeds it is at least 0.500." in text


def test_held_out_success_is_compared_only_if_all_runs_have_it(compared: Make) -> None:
    comparison = compared({"a=1": [[0.1]], "a=2": [[0.2]]})
    assert comparison.held_out
    assert not compared({"a=1": [[0.1]]}, held_out=False).held_out


def test_greedy_success_is_compared_where_it_was_measured(compared: Make) -> None:
    first = next(csv.DictReader(comma_separated(compared({"a=1": [[0.5]]})).splitlines()))
    assert first["measure"] == "final_success"
    assert "greedy" not in comma_separated(compared({"a=1": [[0.5]]}))
    comparison = compared({"a=1": [[0.5, 0.6]]}, greedy=0.9)
    rows = list(csv.DictReader(comma_separated(comparison).splitlines()))
    means = {row["measure"]: float(row["mean"]) for row in rows if row["mean"]}
    assert (means["final_success"], means["greedy_success"]) == (0.6, 0.9)
    assert "Greedy success on held-out tasks" in [chart.title for chart in charts(comparison)]


def test_csv_has_plain_numbers_and_every_run_with_its_directory(compared: Make) -> None:
    comparison = compared({"a=1": [[0.5], [0.7]], "a=2": [[0.5], [0.7]]})
    first = next(csv.DictReader(comma_separated(comparison).splitlines()))
    assert (first["measure"], first["n"], float(first["mean"])) == ("final_success", "2", 0.6)
    runs = list(csv.DictReader(runs_comma_separated(comparison).splitlines()))
    assert [(run["cell"], run["seed"]) for run in runs] == [
        ("a=1", "0"),
        ("a=1", "1"),
        ("a=2", "0"),
        ("a=2", "1"),
    ]
    assert runs[1]["run"] == "cells/01-a-1/seed-1/20260101-000000-0000-run"


def test_markdown_escapes_column_separators(compared: Make) -> None:
    comparison = compared({"a=x|y <b>*": [[0.5]]})
    lines = [line for line in markdown(comparison).splitlines() if line.startswith("| a=")]
    assert all(line.startswith(r"| a=x\|y \<b\>\* |") for line in lines)
    assert len(lines) == 2


def test_curves_are_means_over_seeds_with_the_interval_as_band(compared: Make) -> None:
    comparison = compared({"a=1": [[0.0, 0.4], [0.0, 0.6]], "a=2": [[0.1, 0.2]]}, every=10)
    held_out, train = charts(comparison)
    assert (held_out.title, train.title) == (
        "Success on held-out tasks",
        "Success on training tasks",
    )
    two, one = held_out.series
    assert two.xs == (0.0, 10.0)
    assert two.ys == pytest.approx((0.0, 0.5))
    # s = 0.1414, half width 12.706 * 0.1 = 1.27: cut at 0 and 1.
    assert (two.low, two.high) == ((0.0, 0.0), (0.0, 1.0))
    assert (one.ys, one.low) == ((0.1, 0.2), ())


def test_cells_with_different_numbers_of_rollouts_get_a_chart_over_rollouts(compared: Make) -> None:
    cells = {"a=1": [[0.0, 0.4, 0.5]], "a=2": [[0.1, 0.2, 0.3]]}
    assert len(charts(compared(cells))) == 2
    over = charts(compared(cells, rollouts=lambda cell: 8 * cell))[1]
    assert over.x == "rollout"
    assert [series.xs for series in over.series] == [(0.0, 8.0, 16.0), (0.0, 16.0, 32.0)]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((0.25, 0.25), "0.25 s"),
        ((61.0, 61.0), "61.0 s"),
        ((150.0, 150.0), "2.50 min"),
        ((1200.0, 1200.0), "20.0 min"),
        ((9000.0, 9000.0), "2.50 h"),
        # s = 0.1414, half width 12.706 * 0.1 = 1.27; no time is below 0.
        ((1.0, 1.2), "1.10 s (0.00 to 2.37)"),
    ],
)
def test_times_use_one_unit(values: tuple[float, float], text: str) -> None:
    found = estimate(values)
    assert found is not None
    assert texts.estimate_text(SECONDS, found.within(0.0, math.inf), 2) == text


def test_a_change_has_a_sign_and_missing_seeds_are_counted() -> None:
    assert texts.change_text(SHARE, Estimate(n=3, mean=0.1, low=-0.05, high=0.25), 3) == (
        "+10.0 (-5.0 to +25.0)"
    )
    assert texts.change_text(SHARE, Estimate(n=2, mean=-1e-9), 3) == "+0.0 n=2"
    assert texts.estimate_text(SHARE, Estimate(n=2, mean=0.5), 5) == "50.0% n=2"
    assert texts.estimate_text(ROLLOUTS, Estimate(n=2, mean=1234.0), 2) == "1,234"
    assert texts.change_text(ROLLOUTS, Estimate(n=2, mean=480.0), 2) == "+480"
    assert texts.estimate_text(ROLLOUTS, None, 2) == "-"
