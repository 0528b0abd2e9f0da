"""The table of a stored run."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ale._store import Redactor, RunDirectory
from ale.types import Episode, Failure
from ale_figures.statistics import Estimate
from ale_look.results.against import Difference, difference_line
from ale_look.results.command import results


def episode(task: str, rollout: int, reward: float | None, **more: object) -> Episode:
    failure = None
    if reward is None:
        failure = Failure(stage="sandbox", kind="SandboxError", message="no\nimage")
    facts = {"id": f"0-{task}-{rollout}-{len(more)}", "task_id": task, "rollout": rollout, **more}
    return Episode(reward=reward, failure=failure, seconds={"agent": 2.0}, **facts)  # type: ignore[arg-type]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    config = {"chunker": {"type": "a/b"}, "credit": {"type": "a/c"}}
    manifest = {"schema": 1, "run_id": "run", "config": config, "n_tasks": 3}
    store = RunDirectory.create(path, manifest, Redactor({}))
    for i, reward in enumerate([1.0, 0.0, 1.0]):
        store.add_episode(episode("b", i, reward))
    for i, reward in enumerate([1.0, None, 0.5]):
        store.add_episode(episode("a", i, reward))
    store.add_episode(episode("c", 0, None))
    store.add_episode(episode("a", 0, 1.0, split="evaluation"))
    store.add_episode(episode("a", 3, 1.0, start="expert"))
    store.close()
    return path


def ale(*arguments: str) -> str:
    command = results
    done = CliRunner().invoke(command, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_line_per_task_and_one_per_k(run: Path) -> None:
    assert ale(str(run)) == (
        "task  attempts  passed  broken  reward  pass@1  pass@2  seconds  last cause\n"
        "a            2       1       1   0.750   0.500   1.000      2.0  sandbox: no image\n"
        "b            3       2       0   0.667   0.667   1.000      2.0\n"
        "c            0       0       1       -       -       -      2.0  sandbox: no image\n"
        "\n"
        "pass@1  0.583 of 2 tasks  (95% interval 0.125 to 0.932)\n"
        "pass@2  1.000 of 2 tasks  (95% interval 0.342 to 1.000)\n"
    )


def test_a_huge_reward_has_few_digits(run: Path) -> None:
    store = RunDirectory.resume(run, Redactor({}))
    store.add_episode(episode("d", 0, -1.5e308))
    store.add_episode(episode("d", 1, -1.5e308))  # no float is as large as the sum
    store.close()
    (line,) = [each.split() for each in ale(str(run)).splitlines() if each.startswith("d")]
    assert line[:5] == ["d", "2", "0", "0", "-1.5e+308"]


def test_k_may_be_more_than_some_tasks_have(run: Path) -> None:
    output = ale(str(run), "--k", "3", "--k", "9")
    assert output.endswith("\npass@3  1.000 of 1 task\npass@9  no task has that many attempts\n")


def test_json_has_the_same_and_every_reward(run: Path) -> None:
    results = json.loads(ale(str(run), "--json"))
    assert results["tasks"]["a"]["rewards"] == [1.0, 0.5]
    assert results["tasks"]["a"]["pass_at"] == {"1": 0.5, "2": 1.0}
    assert {task["seconds"] for task in results["tasks"].values()} == {2.0}
    assert [mean["tasks"] for mean in results["pass_at"]] == [2, 2]


def test_a_difference_that_rounds_to_0_has_no_minus() -> None:
    tiny = Estimate(mean=-1e-17, low=-0.0004, high=0.0004, n=3)
    line = difference_line(Difference(k=1, estimate=tiny, p=1.0, corrected=1.0))
    assert line.startswith("pass@1  +0.000 over 3 tasks  (95% interval +0.000 to +0.000)")


def test_two_runs_are_compared_task_by_task(run: Path, tmp_path: Path) -> None:
    """Task a has 1 of 2 against 0 of 2, b 2 of 3 against 1 of 3: differences 1/2 and 1/3."""
    other = tmp_path / "other"
    manifest = json.loads((run / "manifest.json").read_text())
    store = RunDirectory.create(other, manifest, Redactor({}))
    for task, rewards in {"a": [0.0, 0.0], "b": [1.0, 0.0, 0.0], "d": [1.0]}.items():
        for i, reward in enumerate(rewards):
            store.add_episode(episode(task, i, reward))
    store.close()
    text = ale(str(run), "--k", "1", "--k", "2", "--against", str(other))
    assert text.splitlines()[-4:] == [
        "against the other run, paired by task",
        "left out: 1 task of only this run, and 1 task of only the other",
        "pass@1  +0.417 over 2 tasks  (95% interval -0.642 to +1.000)  p 0.5, by Holm 1",
        "pass@2  +0.667 over 2 tasks  (95% interval -1.000 to +1.000)  p 0.5, by Holm 1",
    ]
    results = json.loads(ale(str(run), "--k", "1", "--k", "2", "--against", str(other), "--json"))
    assert results["unpaired"] == {"this": ["c"], "other": ["d"]}
    (first, _) = results["against"]
    assert (first["k"], first["p"], first["estimate"]["n"]) == (1, 0.5, 2)


def test_runs_with_the_same_tasks_leave_none_out(run: Path) -> None:
    assert "left out" not in ale(str(run), "--against", str(run))


def test_runs_without_a_common_task_are_not_compared(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    manifest = json.loads((run / "manifest.json").read_text())
    store = RunDirectory.create(other, manifest, Redactor({}))
    store.add_episode(episode("z", 0, 1.0))
    store.close()
    done = CliRunner().invoke(results, [str(run), "--against", str(other)])
    assert "the two runs have no task in common" in str(done.exception)


def test_the_temperatures_of_an_evaluation_are_named_or_chosen(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    manifest = json.loads((run / "manifest.json").read_text())
    store = RunDirectory.create(other, manifest, Redactor({}))
    for i, temperature in enumerate([0.0, 0.5]):
        store.add_episode(episode("a", i, float(i), split="evaluation", temperature=temperature))
    store.close()
    evaluation = (str(other), "--split", "evaluation")
    said = "greedy, T=0.5 are counted together: --temperature chooses one"
    assert ale(*evaluation).splitlines()[-1] == said
    chosen = ale(*evaluation, "--temperature", "0")
    assert "together" not in chosen
    assert "pass@1  0.000 of 1 task" in chosen
    command, warm = results, ("--temperature", "1")
    none = CliRunner().invoke(command, [*evaluation, *warm])
    assert "no episode of the split 'evaluation' at temperature 1" in str(none.exception)
    assert "add --split evaluation" in CliRunner().invoke(command, [str(other), *warm]).output


def test_the_steps_of_which_a_task_has_attempts_are_named(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    store = RunDirectory.create(
        other, json.loads((run / "manifest.json").read_text()), Redactor({})
    )
    for step in (0, 20, 40):
        store.add_episode(episode("a", 0, step / 40, split="evaluation", step=step))
    for step in range(20):
        store.add_episode(episode("a", 0, 1.0, step=step))
        store.add_episode(episode(f"b{step}", 0, 1.0, step=step))
    store.close()
    evaluation = (str(other), "--split", "evaluation")
    said = "are counted together, also in pass@k: --step chooses one"
    assert ale(*evaluation).splitlines()[-1] == f"steps 0, 20, 40 {said}"
    assert "together" not in ale(*evaluation, "--step", "20")
    assert ale(str(other)).splitlines()[-1] == f"steps 0 to 19 {said}"
    assert f"in the other run, steps 0 to 19 {said}" in ale(str(run), "--against", str(other))
    assert "together" not in ale(str(run))


def test_evaluation_and_steps_are_counted_separately(run: Path) -> None:
    assert json.loads(ale(str(run), "--split", "evaluation", "--json"))["tasks"].keys() == {"a"}
    command = results
    done = CliRunner().invoke(command, [str(run), "--step", "7"])
    assert "no episode of the split 'train' in step 7" in str(done.exception)
