"""pass@k, votes, groups and what is not counted, of stored runs; numbers computed manually."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale.runs import Registry
from ale_bench.results import majority_vote, read_results, shown_ks
from ale_figures.statistics import Attempts

Bench = Callable[..., Any]
Stored = Callable[..., Path]
RIGHT, WRONG, OTHER, NONE, BROKEN = (1.0, "2"), (0.0, "3"), (0.0, "4"), (0.0, None), (None, None)

TEXT = """\
math: 3 problems, 3 samples each
small at temperature 0.5, agent single-shot, sandbox local

         mean  95% interval    problems
pass@1  0.556  0.151 to 0.898         3
pass@2  1.000  0.342 to 1.000         2
pass@3  1.000  0.342 to 1.000         2
maj@3   1.000  0.342 to 1.000         2

level    problems  pass@1  95% interval    pass@3  maj@3
Level 1         2   0.833  0.241 to 0.987   1.000  1.000
Level 5         1   0.000  -                    -      -

unfinished: 1 problem of 3
  the same ale eval command continues it; or these two:
  ale run --resume RUN
  ale eval RUN
broken: 1 attempt without a result, not counted as failures
  1 x agent: LLMError: overloaded
"""


@pytest.fixture
def run(stored: Stored) -> Path:
    attempts = {"a": [RIGHT, RIGHT, RIGHT], "b": [RIGHT, RIGHT, WRONG], "c": [WRONG, BROKEN]}
    return stored(attempts, k=3, levels={"a": "Level 1", "b": "Level 1", "c": "Level 5"})


def test_a_line_per_k_a_table_per_group_and_what_is_not_counted(run: Path, bench: Bench) -> None:
    done = bench(str(run))
    assert done.exit_code == 0, done.output
    (inner,) = run.iterdir()
    shown = done.output.replace(str(inner), "RUN")
    assert shown == TEXT
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("second", "samples"),
    [(6, "6 samples each"), (4, "4 to 6 samples each"), (0, "3 to 6 samples")],
)
def test_of_a_run_of_several_steps_all_samples_are_named(
    stored: Stored, bench: Bench, second: int, samples: str
) -> None:
    found = bench(str(stored({"a": [RIGHT] * 6, "b": [WRONG] * second}, k=3)))
    assert found.output.startswith(f"math: 2 problems, {samples}")


def test_problems_that_a_training_run_did_not_draw_are_not_unfinished(
    stored: Stored, bench: Bench
) -> None:
    attempts = {"drawn": [RIGHT] * 3, "begun": [WRONG], "never": []}
    shown = bench(str(stored(attempts, k=3, tasks_per_step=1))).output
    assert shown.startswith("math: 2 problems, ")
    assert "unfinished: 1 problem of 2" in shown


def test_a_run_directory_itself_can_be_named(run: Path, bench: Bench) -> None:
    (inner,) = run.iterdir()
    assert bench(str(inner)).output == bench(str(run)).output


def test_json_has_every_k_every_group_and_every_answer(run: Path, bench: Bench) -> None:
    found = json.loads(bench(str(run), "--json").output)
    assert (found["problems"], found["unfinished"], found["broken"]) == (3, 1, 1)
    assert found["causes"] == ["1 x agent: LLMError: overloaded"]
    assert found["pass_at"]["2"]["mean"] == pytest.approx(1.0)
    assert found["majority"]["mean"] == 1.0
    assert found["groups"]["level"]["Level 5"]["pass@1"]["mean"] == 0.0
    assert found["tasks"]["b"]["answers"] == ["2", "2", "3"]
    assert found["tasks"]["c"]["rewards"] == [0.0]


def test_causes_are_those_of_the_attempts_that_count(run: Path, registry: Registry) -> None:
    (inner,) = run.iterdir()
    lines = (inner / "episodes.jsonl").read_text().splitlines()
    broken = next(json.loads(line) for line in lines if '"overloaded"' in line)
    others = [{"split": "evaluation"}, {"start": "after turn 1"}]
    with (inner / "episodes.jsonl").open("a") as file:
        file.writelines(
            json.dumps({**broken, **fields, "id": str(i)}) + "\n" for i, fields in enumerate(others)
        )
    results = read_results(run, registry)
    assert (results.broken, results.causes) == (1, ("1 x agent: LLMError: overloaded",))


def test_a_problem_that_was_not_attempted_is_unfinished(stored: Stored, registry: Registry) -> None:
    results = read_results(stored({"a": [RIGHT, RIGHT], "b": [], "c": [RIGHT]}), registry)
    assert results.unfinished == 2
    assert results.pass_at(1).tasks == 2
    assert results.pass_at(2).tasks == 1


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([RIGHT, RIGHT, WRONG], 1.0),
        ([RIGHT, WRONG, WRONG], 0.0),
        ([RIGHT, WRONG, OTHER], 1 / 3),
        ([RIGHT, RIGHT, WRONG, WRONG], 0.5),
        ([RIGHT, NONE, NONE], 1.0),
        ([NONE, NONE, NONE], 0.0),
    ],
)
def test_the_most_frequent_answer_wins_and_ties_share(attempts: Any, expected: float) -> None:
    counted = Attempts(rewards=[a[0] for a in attempts], answers=[a[1] for a in attempts])
    assert majority_vote(counted, len(attempts)) == pytest.approx(expected)
    assert majority_vote(counted, len(attempts) + 1) is None


def test_there_are_no_votes_without_answers_or_for_two(stored: Stored, registry: Registry) -> None:
    code = stored({"a": [NONE, NONE, NONE]}, name="code", k=3)
    assert not read_results(code, registry).votes
    two = stored({"a": [RIGHT, RIGHT]}, name="two", k=2)
    assert not read_results(two, registry).votes


def test_few_k_are_shown_all_and_many_at_round_numbers() -> None:
    assert list(shown_ks(1)) == [1]
    assert list(shown_ks(4)) == [1, 2, 3, 4]
    assert list(shown_ks(10)) == [1, 2, 5, 10]
    assert list(shown_ks(128)) == [1, 2, 5, 10, 20, 50, 100, 128]


def test_a_folder_without_a_run_is_refused(tmp_path: Path, bench: Bench) -> None:
    done = bench(str(tmp_path))
    assert done.exit_code == 2
    assert f"{tmp_path}: no tasks in here" in done.output
    run = bench(str(tmp_path), "--against", str(tmp_path))
    assert "--against compares the results of a stored RUN" in run.output


def test_a_folder_with_several_runs_asks_for_one(stored: Stored, bench: Bench) -> None:
    run = stored({"a": [RIGHT]})
    (inner,) = run.iterdir()
    (inner / "deeper").mkdir()
    other = run / "20270101-000000-0000-math"
    other.mkdir()
    (other / "manifest.json").write_bytes((inner / "manifest.json").read_bytes())
    done = bench(str(run))
    assert done.exit_code == 2
    assert "has 2 runs: name one of them" in done.output


def test_passes_that_are_contested_are_said(run: Path, bench: Bench, registry: Registry) -> None:
    (inner,) = run.iterdir()
    assert "contested: " not in bench(str(run)).output
    lines = [json.loads(line) for line in (inner / "episodes.jsonl").read_text().splitlines()]
    passed = next(each for each in lines if each["reward"] == 1.0)
    passed["scores"][0]["contested"] = 0.0
    with (inner / "episodes.jsonl").open("a") as file:
        file.write(json.dumps(passed) + "\n")
    shown = bench(str(run)).output
    assert (
        f"contested: 1 attempt passed, and may have made the verdict itself\n  {passed['id']}\n"
        in shown
    )
    assert "contested=failed counts them as failures" in shown
    assert read_results(run, registry).contested == {passed["id"]: 1.0}
    passed["scores"][0].update(passed=False, value=0.0)
    with (inner / "episodes.jsonl").open("a") as file:
        file.write(json.dumps({**passed, "reward": 0.0}) + "\n")
    shown = bench(str(run)).output
    assert "contested: 1 attempt passed" in shown
    assert "  none counts as a success (run.contested); ale show RUN EPISODE says why" in shown
    assert read_results(run, registry).contested == {passed["id"]: 0.0}


def test_attempts_that_could_not_be_graded_again_are_counted(run: Path, bench: Bench) -> None:
    (inner,) = run.iterdir()
    first = json.loads((inner / "episodes.jsonl").read_text().splitlines()[0])
    folder = inner / "regraded/1"
    folder.mkdir(parents=True)
    line = {"episode": first["id"], "old": 1, "new": 1, "problem": None}
    (folder / "episodes.jsonl").write_text(json.dumps(line) + "\n")
    shown = bench(str(run)).output
    assert "regraded: 1 of 1 attempt succeed by newer scores" in shown
    assert "\n  7 attempts without a newer score in it\n" in shown
