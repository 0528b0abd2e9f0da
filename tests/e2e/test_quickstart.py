"""The quickstart: its tasks can be judged, and the pages say what its stored runs have shown."""

import importlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TASKS = ROOT / "configs" / "quickstart_tasks.py"


@pytest.fixture(scope="module")
def made() -> Any:
    """The file of the tasks."""
    return runpy.run_path(str(TASKS))


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "study"))
    yield importlib.import_module("quickstart")
    del sys.modules["quickstart"]


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("noop", 0.0)])
@pytest.mark.parametrize("split", ["train", "held_out"])
def test_its_tasks_are_solved_by_their_solutions_whether_they_look_or_not(
    workshop: Any, split: str, agent: str, reward: float
) -> None:
    tasks = {"type": "find", "seed": 5, "count": 24, "split": split, "looks": 0.5}
    workshop.config(plugins=[str(TASKS)], tasks=tasks, agent={"type": agent})
    workshop.succeeds("run", "run.yaml", "-n", "4")
    episodes = workshop.episodes()
    assert len(episodes) == 24
    assert {name for name, each in episodes.items() if each["reward"] != reward} == set()
    assert workshop.left_behind() == []


def test_a_guess_without_looking_is_right_for_one_task_in_eight(made: Any) -> None:
    tasks = list(made["FindTasks"](made["FindOptions"](count=4000)).load())
    acts = [task.solution[-1] for task in tasks]
    for file in made["FILES"]:
        assert 0.10 < sum(act == f"mv {file} old" for act in acts) / 4000 < 0.15
    turns = [len(task.solution) for task in tasks]
    assert 0.77 < turns.count(1) / 4000 < 0.83
    assert 0.10 < turns.count(3) / 4000 < 0.15


def test_nothing_in_a_goal_tells_where_the_file_is(made: Any) -> None:
    tasks = list(made["FindTasks"](made["FindOptions"](count=4000)).load())
    files: dict[str, set[str]] = {}
    for task in tasks:
        files.setdefault(task.goal, set()).add(task.solution[-1].split()[1])
    assert len(files) == 48
    assert {len(found) for found in files.values()} == {4}


def test_held_out_tasks_have_pairs_of_words_that_training_has_not(made: Any) -> None:
    goals = {
        split: {
            t.goal for t in made["FindTasks"](made["FindOptions"](count=2000, split=split)).load()
        }
        for split in ("train", "held_out")
    }
    assert len(goals["held_out"]) == 16
    assert not goals["train"] & goals["held_out"]


def test_a_table_has_each_seed_with_its_best_control(study: ModuleType) -> None:
    def row(run: str, after: int, temperature: float, successes: int) -> Any:
        return study.Result(0, run, after, temperature, successes, 100)

    results = [
        *(row("quickstart", 24, t, n) for t, n in ((0.0, 10), (0.3, 13), (0.6, 21), (1.0, 19))),
        *(row("quickstart", 36, t, n) for t, n in ((0.0, 90), (1.0, 70))),
        *(row("imitation", step, 0.0, n) for step, n in ((0, 10), (12, 25))),
        *(row("weight-one", step, 0.0, n) for step, n in ((0, 10), (12, 9))),
    ]
    lines = list(study.table(results))
    assert "| 0 | 10% | 13% | 21% | 19% | 25% | 9% | 70% | 90% | +65 |" in lines
    assert "at least 30 points above the best control with 1 of the 1 seeds" in lines[-1]
    some = list(study.table(results[:8]))
    assert "| 0 | 10% | 13% | 21% | 19% | 25% | - | 70% | 90% | - |" in some
    assert "with 0 of the 0 seeds" in some[-1]


def test_the_table_of_ppo_has_its_margin_and_what_its_critic_explained(study: ModuleType) -> None:
    def row(run: str, after: int, temperature: float, successes: int) -> Any:
        return study.Result(0, run, after, temperature, successes, 100)

    results = [
        *(row("quickstart", 24, t, 10) for t in (0.0, 0.3, 0.6, 1.0)),
        *(row("quickstart", 36, t, 90) for t in (0.0, 1.0)),
        *(row(run, 12, 0.0, n) for run, n in (("imitation", 25), ("weight-one", 9))),
        *(row("ppo", 12, t, n) for t, n in ((0.0, 80), (1.0, 60))),
    ]
    explained = [-0.1, 0.0, 0.1, 0.2, 0.5, 0.6, 0.7]
    steps = [study.Step(0, "ppo", i, {"explained_variance": v}) for i, v in enumerate(explained)]
    assert "| 0 | 10% | 25% | 60% | 80% | +55 | 0.00, 0.60 |" in study.ppo_table(results, steps)


def test_filtered_imitation_stands_beside_ipa_and_is_no_control(study: ModuleType) -> None:
    def row(run: str, after: int, temperature: float, successes: int) -> Any:
        return study.Result(0, run, after, temperature, successes, 100)

    results = [
        *(row("quickstart", 24, t, 10) for t in (0.0, 0.3, 0.6, 1.0)),
        *(row("quickstart", 36, t, n) for t, n in ((0.0, 98), (1.0, 90))),
        *(row(run, 12, 0.0, n) for run, n in (("imitation", 25), ("weight-one", 9))),
    ]
    assert len(list(study.filtered_table(results))) == 2
    results += [row("filtered-imitation", 12, t, n) for t, n in ((0.0, 97), (1.0, 80))]
    assert list(study.filtered_table(results))[2:] == ["| 0 | 25% | 90% | 98% | 80% | 97% |"]


def test_the_pages_have_the_tables_of_the_stored_results(study: ModuleType) -> None:
    results, steps = study.stored(), study.stored_steps()
    assert results, "docs/study/quickstart.csv"
    for page in study.PAGES:
        text = page.read_text()
        made = study.placed(text, results, steps)
        assert made == text, f"python tests/study/quickstart.py --collect: {page}"


def test_what_was_learned_is_more_than_any_control_has(study: ModuleType) -> None:
    margins = [seed.margin for seed in study.by_seed(study.stored())]
    assert len(margins) == 10
    assert sum(margin >= study.ENOUGH for margin in margins) >= 9


def test_ppo_learned_more_than_any_control_with_seven_of_eight_seeds(study: ModuleType) -> None:
    with_ppo = [seed for seed in study.by_seed(study.stored()) if seed.ppo]
    assert [seed.seed for seed in with_ppo] == list(range(20, 28))
    above = [seed.ppo[0.0] - seed.best_control >= study.ENOUGH for seed in with_ppo]
    assert above.count(True) == 7
    steps = [step for step in study.stored_steps() if step.run == "ppo"]
    assert [step.step for step in steps] == list(range(14)) * 8


def test_a_policy_whose_moments_were_kept_forgot_what_one_with_fresh_moments_did_not(
    study: ModuleType,
) -> None:
    lines = list(study.moments_table(study.stored(study.MOMENTS)))
    assert len(lines) == 2 + 3
    assert "| 12 | 9% | 0% | 100% |" in lines


@pytest.mark.needs("torch")
def test_its_failures_are_trained_on_in_several_updates(workshop: Any) -> None:
    short = {
        "starts.demonstrations": 1,
        "run.steps": 2,
        "run.tasks_per_step": 6,
        "evaluation.tasks.count": 2,
        "evaluation.temperatures": "[0]",
    }
    sets = [f"--set={key}={value}" for key, value in short.items()]
    config = str(ROOT / "configs" / "quickstart.yaml")
    workshop.succeeds("run", config, *sets)
    shown = [each for name, each in workshop.episodes().items() if "@demo" in name]
    assert [each["reward"] for each in shown] == [1.0] * 6
    steps = [line for line in workshop.lines("events.jsonl") if line["event"] == "step_finished"]
    assert steps[0]["metrics"]["updates"] == 6
    assert steps[0]["metrics"]["loss_imitation"] > 0
