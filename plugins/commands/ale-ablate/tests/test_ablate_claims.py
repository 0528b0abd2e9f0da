"""Claims against controls: expected numbers are computed manually."""

from pathlib import Path
from typing import Any

import pytest

from ale_ablate.claims import Claim, claims
from ale_ablate.comparing import compare
from ale_ablate.grid import Cell, Grid
from ale_ablate.measuring import Measured
from ale_ablate.tables import comma_separated, terminal

CELLS = (
    Cell.of(1, []),
    Cell.of(2, ["credit.type=weight-one"], "reward-blind"),
    Cell.of(3, ["run.steps=3"], "frozen"),
)


def grid_of(n: int, cells: tuple[Cell, ...] = CELLS) -> Grid:
    return Grid(
        path=Path("/grid"),
        name="g",
        created="now",
        source="g.yaml",
        overrides=(),
        cells=cells,
        seeds=tuple(range(n)),
        versions={},
        branches=True,
    )


def runs_of(grid: Grid, after: dict[str, float], **missing: Any) -> list[Measured]:
    """Runs with this success by `control` or `control@temperature`; 1 point more with each seed."""
    made = []
    for slot in grid.slots():
        control = slot.cell.control or "arm"
        if missing.get("without") == control:
            made.append(Measured(slot=slot, state="missing"))
            continue
        temperatures = (0.0, 0.3, 1.0) if control == "frozen" else (0.0, None)
        found = {
            temperature: (
                (0, 0.0),
                (3, 0.05),
                (6, after.get(f"{control}@{temperature}", after[control]) + 0.01 * slot.seed),
            )
            for temperature in temperatures
        }
        made.append(
            Measured(
                slot=slot,
                state="completed",
                start=3,
                evaluations=found,
                held_out=found[max(found, key=lambda t: 9 if t is None else t)],
                greedy=found[0.0],
            )
        )
    return made


def claims_of(n: int, after: dict[str, float], **more: Any) -> list[Claim]:
    return claims(runs_of(grid_of(n), after, **more))[1]


def test_a_claim_holds_where_every_control_is_exceeded_by_enough_seeds() -> None:
    """8 comparisons, each 10 of 10 seeds: p = 2 / 1024, by Holm 8 * 2 / 1024 = 0.0156."""
    after = {"arm": 0.8, "reward-blind": 0.3, "frozen": 0.1, "frozen@0.3": 0.4}
    greedy, sampled = claims_of(10, after)
    assert greedy.holds
    assert [each.p for each in greedy.compared] == [2 / 1024] * 4
    assert [each.corrected for each in greedy.compared] == [pytest.approx(8 * 2 / 1024)] * 4
    assert [each.control.name for each in greedy.compared] == [
        "frozen, at temperature 0.3",
        "reward-blind, greedy",
        "frozen, greedy",
        "frozen, at temperature 1",
    ]
    # Every seed is 40 points above: an interval without width.
    assert greedy.sentence == (
        "as written, greedy: 84.5%, +40.0 points against the best control: frozen, at temperature "
        "0.3 (44.5%), 95% interval +40.0 to +40.0. It learned what no control did: p is at most "
        "0.016 against each (exact sign-flip test over 10 seeds, Holm over 8 comparisons)."
    )
    assert sampled.compared[1].control.name == "reward-blind, sampled"


def test_five_seeds_are_too_few_whatever_they_say() -> None:
    greedy, _ = claims_of(5, {"arm": 0.9, "reward-blind": 0.0, "frozen": 0.0})
    assert not greedy.holds
    assert greedy.sentence.endswith(
        "Not shown: 5 seeds are too few for 8 comparisons, which need 9."
    )


def test_a_control_that_does_as_well_refutes_the_claim() -> None:
    """What the quickstart did: greedily the frozen policy did as much as the trained one."""
    after = {"arm": 0.9, "reward-blind": 0.1, "frozen": 0.1, "frozen@0.0": 0.95}
    greedy, _ = claims_of(10, after)
    assert not greedy.holds
    assert "-5.0 points against the best control: frozen, greedy (99.5%)" in greedy.sentence
    assert greedy.sentence.endswith("Not shown: frozen, greedy, does as well without rewards.")


def test_differences_that_change_their_sign_show_nothing() -> None:
    """Six seeds are 1 point above and four 1 below: p = 1 - (10 over 5) / 1024 = 0.75."""
    runs = runs_of(grid_of(10), {"arm": 0.5, "reward-blind": 0.49, "frozen": 0.1})
    for run in runs:
        if run.slot.cell.control == "reward-blind" and run.slot.seed < 4:
            run.evaluations[0.0] = ((6, 0.51 + 0.01 * run.slot.seed),)  # type: ignore[index]
    greedy, sampled = claims(runs)[1]
    assert not greedy.holds
    assert "Not shown: p is 0.75 against reward-blind, greedy" in greedy.sentence
    assert sampled.holds


def test_a_control_without_a_run_is_named() -> None:
    greedy, _ = claims_of(10, {"arm": 0.9, "frozen": 0.1, "reward-blind": 0.0}, without="frozen")
    assert not greedy.holds
    assert greedy.sentence.endswith("Not shown: no completed run of frozen.")
    none = claims(runs_of(grid_of(2, CELLS[:2]), {"arm": 0.9}, without="reward-blind"))[1]
    assert none[0].sentence == "as written, greedy: no control has completed with the same seed."


def test_several_arms_are_corrected_for_together() -> None:
    cells = (Cell.of(1, ["a=1"]), Cell.of(2, ["a=2"]), Cell.of(3, ["b=1"], "reward-blind"))
    found = claims(runs_of(grid_of(10, cells), {"arm": 0.9, "reward-blind": 0.1}))[1]
    assert [claim.arm.name for claim in found] == [
        "a=1, greedy",
        "a=1, sampled",
        "a=2, greedy",
        "a=2, sampled",
    ]
    assert {claim.n_comparisons for claim in found} == {4}


def test_before_is_where_the_arms_begin() -> None:
    comparison = compare(
        grid_of(2), runs_of(grid_of(2), {"arm": 0.5, "reward-blind": 0.1, "frozen": 0.1})
    )
    arm, *_ = comparison.decoded
    assert arm.before == {0: 0.05, 1: 0.05}
    assert arm.after == {0: 0.5, 1: 0.51}
    text = terminal(comparison)
    assert "With controls" in text
    assert "Differences to" not in text


def test_arms_are_tested_exactly_and_corrected_together() -> None:
    """Two arms with two measures: 4 tests of 6 seeds, p = 2 / 64, by Holm 4 * 2 / 64."""
    cells = (Cell.of(1, ["a=1"]), Cell.of(2, ["a=2"]), Cell.of(3, ["a=3"]))
    grid = grid_of(6, cells)
    runs = runs_of(grid, {"arm": 0.2})
    for run in runs:
        if run.slot.number > 1:
            better = tuple((step, y + 0.1) for step, y in run.held_out)
            object.__setattr__(run, "held_out", better)
            object.__setattr__(run, "greedy", better)
    comparison = compare(grid, runs)
    second = comparison.rows[1].tests["final_success"]
    assert (second.p, second.corrected) == (2 / 64, pytest.approx(8 / 64))
    assert " p=0.125" in terminal(comparison)
    text = " ".join(terminal(comparison).split())
    assert "for the 4 tests of this table. With 6 seeds it is at least 0.125." in text
    assert "0.03125,0.125" in comma_separated(comparison)


def test_a_difference_that_rounds_to_zero_is_not_negative() -> None:
    grid = grid_of(2)
    runs = runs_of(grid, {"arm": 0.5, "reward-blind": 0.5 + 1e-7, "frozen": 0.5})
    text = terminal(compare(grid, runs))
    assert "+0.0" in text
    assert "-0.0" not in text
