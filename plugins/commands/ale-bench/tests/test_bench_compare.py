"""Two runs side by side; numbers computed manually."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Bench = Callable[..., Any]
Stored = Callable[..., Path]
RIGHT, WRONG, BROKEN = (1.0, "2"), (0.0, "3"), (None, None)

A = {"a": [WRONG], "b": [RIGHT], "c": [WRONG], "d": [RIGHT], "e": [BROKEN]}
B = {"a": [RIGHT], "b": [RIGHT], "c": [WRONG], "d": [WRONG], "e": [RIGHT]}


def test_the_difference_is_paired_by_problem(stored: Stored, bench: Bench) -> None:
    """B - A is 1, 0, 0, -1: mean 0, s = sqrt(2 / 3), half width 3.182 * s / 2 = 1.299, cut at 1."""
    found = bench(str(stored(A, name="A", k=1)), "--against", str(stored(B, name="B", k=1)))
    assert found.exit_code == 0, found.output
    lines = [" ".join(line.split()) for line in found.output.splitlines()]
    assert "pass@1 0.500 0.500 +0.000 -1.000 to +1.000 4" in lines
    assert lines[-4:] == [
        "solved by both 1, by neither 1",
        "solved by A alone 1: d",
        "solved by B alone 1: a",
        "left out: 1 problem without a result in a run",
    ]


def test_more_problems_give_a_narrower_interval(stored: Stored, bench: Bench) -> None:
    """Of 100 differences 20 are 1: s = 0.4020, half width 1.984 * 0.0402 = 0.0798."""
    a = {f"p{i:02}": [WRONG] for i in range(100)}
    b = {f"p{i:02}": [RIGHT if i < 20 else WRONG] for i in range(100)}
    runs = [str(stored(each, name=name, k=1)) for name, each in (("A", a), ("B", b))]
    found = json.loads(bench(runs[0], "--against", runs[1], "--json").output)
    difference = found["pass_at"]["1"]["difference"]
    assert difference["mean"] == pytest.approx(0.2)
    assert difference["low"] == pytest.approx(0.2 - 0.0798, abs=1e-4)
    assert len(found["solved_by_b_alone"]) == 20
    text = bench(runs[0], "--against", runs[1]).output
    assert "solved by B alone 20: p00, p01, p02, p03, p04, p05, p06, p07 and 12 more" in text


def test_equal_differences_have_no_interval(stored: Stored, bench: Bench) -> None:
    a = stored({each: [RIGHT, WRONG, WRONG] for each in "pqr"}, name="A", k=3)
    b = stored({each: [RIGHT, RIGHT, WRONG] for each in "pqr"}, name="B", k=3)
    assert "+0.333  - (all equal)" in bench(str(a), "--against", str(b)).output


def test_pass_at_k_is_compared_up_to_the_smaller_k(stored: Stored, bench: Bench) -> None:
    a = stored({"a": [RIGHT, WRONG, WRONG]}, name="A", k=3)
    b = stored({"a": [RIGHT, WRONG]}, name="B", k=2)
    found = json.loads(bench(str(a), "--against", str(b), "--json").output)
    assert [*found["pass_at"]] == ["1", "2"]
    assert found["pass_at"]["1"]["difference"]["mean"] == pytest.approx(1 / 2 - 1 / 3)


def test_runs_of_different_problems_are_refused(stored: Stored, bench: Bench) -> None:
    a = stored({"a": [RIGHT], "b": [RIGHT]}, name="A")
    done = bench(str(a), "--against", str(stored({"a": [RIGHT]}, name="B")))
    assert done.exit_code == 2
    assert "1 only in A, 0 only in B; 'b' is only in" in done.output


def test_problems_of_one_id_that_are_graded_differently_are_refused(
    stored: Stored, bench: Bench
) -> None:
    a, b = stored({"a": [RIGHT]}, name="A"), stored({"a": [RIGHT]}, name="B", expected="3")
    done = bench(str(a), "--against", str(b))
    assert done.exit_code == 2
    assert "the runs grade 1 of 1 problem differently, such as 'a'" in done.output


def test_other_prompts_are_allowed_and_said(stored: Stored, bench: Bench) -> None:
    a, b = stored({"a": [RIGHT]}, name="A"), stored({"a": [RIGHT]}, name="B", goal="1 + 1 = ?")
    assert "note: the prompts of 1 problem differ" in bench(str(a), "--against", str(b)).output
