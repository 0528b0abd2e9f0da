"""What a run says of the parts of its objective, afterwards."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from ale.runs import RunReader
from ale.testing.builders import episode, turn
from ale_figures.charts.testing import ReadPage
from ale_look.view.single import write_report

OBJECTIVE = {
    "name": "ipa",
    "parts": [
        {"name": "ratio", "idle": "", "metrics": {"ratio_min": 1.0, "ratio_max": 1.0}},
        {"name": "clamp", "idle": "", "metrics": {"clamped_fraction": 0.0}},
        {"name": "mask", "idle": "no stale samples", "metrics": {"masked_fraction": 0.0}},
    ],
    "reduces_to": "",
}
CANNOT = "mask can't act: no stale samples"


def step(ratio: float, clamped: float) -> Mapping[str, float]:
    return {
        "updates": 1.0,
        "ratio_min": ratio,
        "ratio_max": 1.0,
        "clamped_fraction": clamped,
        "masked_fraction": 0.0,
    }


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step(0.7, 0.1), step(1.0, 0.0)], [CANNOT]),
        ([step(0.7, 0.0), step(1.0, 0.0)], ["clamp could act, and did not in any of 2 steps"]),
        (
            [step(0.99999, 0.0)],
            [
                "ratio could act, and did not in any of 1 step",
                "clamp could act, and did not in any of 1 step",
            ],
        ),
        ([{"updates": 0.0}], [CANNOT]),
    ],
    ids=["both acted", "no clamp", "rounding", "not measured"],
)
def test_show_and_report_name_the_parts_that_did_not_act(
    ale: Callable[..., Result],
    write: Callable[..., Path],
    tmp_path: Path,
    steps: list[Mapping[str, float]],
    expected: list[str],
) -> None:
    events = [("step_finished", {"step": n, "metrics": each}) for n, each in enumerate(steps)]
    about: dict[str, Any] = {"objective": OBJECTIVE}
    path = write(tmp_path / "run", [episode(1.0, turn("a"))], manifest=about, events=events)
    lines = ale("show", str(path)).output.splitlines()
    told = [line.split("objective  ")[-1].strip() for line in lines if " act" in line]
    assert told == list(dict.fromkeys([*(e for e in expected if e != CANNOT), CANNOT]))
    write_report(RunReader(path), path / "report.html", episodes=1, megabytes=1)
    (about,) = (
        json.loads(text)["about"]
        for of, text in ReadPage((path / "report.html").read_text()).scripts
        if of.get("data-path") == "run/run.json"
    )
    assert [text for name, text in about if name == "objective"] == told


def test_what_is_left_of_an_objective_comes_first(
    ale: Callable[..., Result], write: Callable[..., Path], tmp_path: Path
) -> None:
    about = {"objective": {**OBJECTIVE, "reduces_to": "reinforce on successes alone"}}
    path = write(tmp_path / "run", [episode(1.0, turn("a"))], manifest=about)
    output = ale("show", str(path)).output
    assert "objective    ipa is here reinforce on successes alone\n" in output


def test_a_run_whose_trainer_does_not_tell_has_no_line(
    ale: Callable[..., Result], write: Callable[..., Path], tmp_path: Path
) -> None:
    path = write(tmp_path / "run", [episode(1.0, turn("a"))])
    assert "objective" not in ale("show", str(path)).output
