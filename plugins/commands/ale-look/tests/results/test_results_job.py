"""A run as a Harbor job: its files, and that Harbor reads them if it is installed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner

from ale._store import Redactor, RunDirectory
from ale.errors import InputError
from ale.testing.builders import turn
from ale.types import CriterionSpec, Episode, Failure, Score, Stop, Task, Trajectory
from ale_look.results.command import harbor_job
from ale_look.results.job import write_job
from ale_look.results.job.digest import folder_digest
from ale_look.results.job.trial import Facts, Trial

TURN = turn("done", calls=[("shell", '{"command": "ls"}')])
BEGAN = "2026-01-01T10:00:00.000+00:00"
SECONDS = {"sandbox": 1.0, "setup": 1.0, "agent": 5.0, "grading": 2.0, "teardown": 0.5}


def trajectory(n: int = 1, **stop: Any) -> Trajectory:
    return Trajectory(turns=(TURN,) * n, stop=Stop(**{"reason": "finished", **stop}))


def episode(task: str, rollout: int = 0, reward: float | None = 1.0, **more: Any) -> Episode:
    facts = {"trajectory": trajectory(), "sandbox": "docker", "seconds": SECONDS, **more}
    id = f"0-{task}-{rollout}"
    return Episode(id=id, task_id=task, rollout=rollout, reward=reward, started_at=BEGAN, **facts)


def score(value: float, kept: str | None = None) -> tuple[Score, ...]:
    return (Score(criterion="t", passed=value == 1, value=value, detail="why", kept=kept),)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three tasks: one with what its tests left, one of two steps, one that broke."""
    folder = tmp_path / "tasks" / "hello"
    for name in ("task.toml", "tests/test.sh", "tests/__pycache__/x.pyc", "notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    path = tmp_path / "run"
    config = {
        "tasks": {"type": "ale-tasks-harbor/harbor", "path": str(tmp_path / "tasks")},
        "agent": {"type": "ale-agent-iflow/iflow"},
        "chunker": {"type": "a/b"},
        "credit": {"type": "a/c"},
        "run": {"concurrency": 3, "retries": 1},
    }
    manifest = {
        "schema": 1,
        "run_id": "the-run",
        "created": BEGAN,
        "config": config,
        "n_tasks": 3,
        "versions": {"ale-agent-iflow": "9.9"},
    }
    store = RunDirectory.create(path, manifest, Redactor({}))
    hello = {"origin": str(folder / "task.toml"), "metadata": {"name": "org/hello"}}
    store.add_task(Task(id="hello", goal="g", **hello))
    steps = tuple(
        Task(id=f"two.{id}", goal="g", metadata={"step": name})
        for id, name in (("a", "a"), ("b-2", "b 2"), ("c", "../c"))
    )
    store.add_task(Task(id="two", goal="g", steps=steps))
    store.add_task(Task(id="gone", goal="g"))
    kept = path / "verifier" / "hello-x"
    for name, text in {
        "rewards.json": '{"reward": 0.5, "style": 1}',
        "test-stdout.txt": "said\n",
        "logs/reward.json": "{}",
        "logs/more/file": "deep",
        "artifacts/app/out": "made",
        "artifacts/manifest.json": json.dumps(
            [{"source": "/app/out", "status": "ok"}, {"source": "/no", "status": "not there"}]
        ),
    }.items():
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).write_text(text)
    store.add_episode(episode("hello", reward=0.5, scores=score(0.5, "verifier/hello-x")))
    late = trajectory(reason="time_limit", detail="too slow")
    store.add_episode(episode("hello", 1, reward=0.0, scores=score(0.0), trajectory=late))
    graded = score(1.0) + score(0.25)
    both = {"two.a": 1, "two.b-2": 3}
    store.add_episode(
        episode(
            "two",
            reward=0.625,
            scores=graded,
            metadata={"steps": both},
            trajectory=trajectory(3),
        )
    )
    failure = Failure(stage="sandbox", kind="SandboxError", message="no image", traceback="Trace")
    store.add_episode(
        episode(
            "gone",
            reward=None,
            failure=failure,
            earlier_failures=(failure,),
            trajectory=Trajectory(),
            seconds={"sandbox": 4.0},
        )
    )
    store.add_episode(episode("hello", 2, start="expert"))
    store.close()
    return path


def read(file: Path) -> Any:
    return json.loads(file.read_text())


def one(job: Path, name: str, reward: float | None) -> Path:
    for folder in sorted(job.glob(f"{name}__*")):
        result = read(folder / "result.json")["verifier_result"]
        if (None if result is None else result["rewards"]["reward"]) == reward:
            return folder
    raise AssertionError(f"no trial of {name} with {reward}")


def test_a_trial_has_what_the_tests_left_and_what_the_agent_did(run: Path, tmp_path: Path) -> None:
    job = write_job(run, tmp_path / "jobs")
    folder = one(job, "hello", 0.5)
    result = read(folder / "result.json")
    assert folder.name == result["trial_name"] == read(folder / "config.json")["trial_name"]
    assert len(folder.name) == len("hello__1234567")
    assert (result["task_name"], result["source"]) == ("org/hello", "tasks")
    assert result["task_id"] == {"path": str(tmp_path / "tasks" / "hello")}
    assert result["verifier_result"]["rewards"] == {"reward": 0.5, "style": 1}
    assert result["agent_info"]["version"] == "9.9"
    assert result["agent_execution"] == {
        "started_at": "2026-01-01T10:00:02+00:00",
        "finished_at": "2026-01-01T10:00:07+00:00",
    }
    assert result["finished_at"] == "2026-01-01T10:00:09.500000+00:00"
    assert (folder / "verifier" / "test-stdout.txt").read_text() == "said\n"
    assert (folder / "verifier" / "more" / "file").read_text() == "deep"
    assert (folder / "artifacts" / "app" / "out").read_text() == "made"
    manifest = read(folder / "artifacts" / "manifest.json")
    assert [entry["status"] for entry in manifest] == ["ok", "failed"]
    assert manifest[0]["destination"] == "artifacts/app/out"
    steps = read(folder / "agent" / "trajectory.json")["steps"]
    assert [step["step_id"] for step in steps] == [1]
    assert steps[0]["tool_calls"][0]["function_name"] == "shell"


def test_steps_have_folders_and_results_of_their_own(run: Path, tmp_path: Path) -> None:
    job = write_job(run, tmp_path / "jobs")
    folder = one(job, "two", 0.625)
    result = read(folder / "result.json")
    assert [
        (step["step_name"], step["verifier_result"]["rewards"]) for step in result["step_results"]
    ] == [("a", {"reward": 1.0}), ("b 2", {"reward": 0.25})]
    assert result["verifier_environment_mode"] is None
    assert read(folder / "lock.json")["verifier"]["environment_mode"] is None
    turns = [
        read(folder / "steps" / name / "agent" / "trajectory.json")["final_metrics"]["total_steps"]
        for name in ("a", "b 2")
    ]
    assert turns == [1, 2]
    assert (folder / "steps" / "b 2" / "verifier" / "test-stdout.txt").read_text() == "t: why\n"
    assert not (folder / "agent").exists()


def _trial(run: Path, task: Task, **facts: Any) -> Trial:
    given = Facts(
        run=run, run_id="r", job_id="j", folder=run, agent="oracle", agent_version="1", source="s"
    )
    return Trial(facts=given, episode=episode(task.id, **facts), task=task, digest="d")


@pytest.mark.parametrize(
    ("which", "rewards"),
    [
        ("mean", {"reward": 0.75, "style": 0.5, "speed": 1.5}),
        ("last", {"reward": 0.5, "speed": 3}),
    ],
)
def test_of_several_steps_each_reward_has_its_own_mean(
    tmp_path: Path, which: Literal["mean", "last"], rewards: Mapping[str, float]
) -> None:
    for name, text in (("a", '{"reward": 1, "style": 1}'), ("b", '{"reward": 0.5, "speed": 3}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rewards.json").write_text(text)
    steps = (Task(id="t.a", goal="g"), Task(id="t.b", goal="g"))
    task = Task(id="t", goal="g", steps=steps, steps_reward=which)
    scores = score(1.0, "a") + score(0.5, "b")
    trial = _trial(tmp_path, task, scores=scores, metadata={"steps": {"t.a": 0, "t.b": 1}})
    assert trial.result()["verifier_result"] == {"rewards": rewards}


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({"separate_verifier": {"image": "x"}}, "separate"),
        ({"separate_verifier": None}, "shared"),
        ({"apart": {"image": "x"}}, "separate"),
    ],
    ids=["separate", "shared", "separate, stored by version 0.1"],
)
def test_a_trial_says_whether_its_tests_had_a_container_of_their_own(
    tmp_path: Path, options: Mapping[str, object], mode: str
) -> None:
    criterion = CriterionSpec(type="task_tests", options=options)
    trial = _trial(tmp_path, Task(id="t", goal="g", criteria=(criterion,)))
    assert trial.result()["verifier_environment_mode"] == mode
    assert trial.lock()["verifier"]["environment_mode"] == mode


def test_broken_episodes_and_timeouts_are_exceptions(run: Path, tmp_path: Path) -> None:
    job = write_job(run, tmp_path / "jobs")
    broken = one(job, "gone", None)
    assert read(broken / "result.json")["exception_info"]["exception_type"] == "SandboxError"
    assert (broken / "exception.txt").read_text() == "Trace"
    assert not (broken / "agent" / "trajectory.json").exists()
    late = one(job, "hello", 0.0)
    assert read(late / "result.json")["exception_info"]["exception_type"] == "AgentTimeoutError"


def test_a_job_counts_its_trials(run: Path, tmp_path: Path) -> None:
    job = write_job(run, tmp_path / "jobs", "mine")
    assert job == tmp_path / "jobs" / "mine"
    config = read(job / "config.json")
    assert (config["job_name"], config["n_attempts"]) == ("mine", 2)
    assert config["datasets"] == [{"path": str(tmp_path / "tasks")}]
    result = read(job / "result.json")
    stats = result["stats"]
    assert (result["n_total_trials"], stats["n_completed_trials"]) == (4, 4)
    assert (stats["n_errored_trials"], stats["n_retries"]) == (2, 1)
    (found,) = stats["evals"].values()
    assert (found["n_trials"], found["n_errors"], found["pass_at_k"]) == (3, 2, {})
    assert found["metrics"] == [{"reward": (0.5 + 0.625) / 4, "style": 0.25}]
    assert len(read(job / "lock.json")["trials"]) == 4
    assert len((job / "job.log").read_text().splitlines()) == 4


def test_a_job_is_deterministic_and_never_replaced(run: Path, tmp_path: Path) -> None:
    first = write_job(run, tmp_path / "one", "job")
    again = write_job(run, tmp_path / "two", "job")
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    with pytest.raises(InputError, match="the job already exists"):
        write_job(run, tmp_path / "one", "job")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["job"]
    with pytest.raises(InputError, match="no episode of the split 'evaluation'"):
        write_job(run, tmp_path / "one", "other", "evaluation")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["job"]


def test_the_digest_covers_the_files_of_a_task(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tasks" / "hello"
    first = folder_digest(folder)
    (folder / "notes.txt").write_text("other")
    (folder / "tests" / "__pycache__" / "x.pyc").write_text("other")
    assert folder_digest(folder) == first
    (folder / "tests" / "test.sh").write_text("other")
    assert folder_digest(folder) != first
    lock = read(one(write_job(run, tmp_path / "jobs"), "hello", 0.5) / "lock.json")
    assert lock["task"]["digest"] == f"sha256:{folder_digest(folder)}"


def test_the_command_prints_the_path_of_the_job(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(harbor_job, [str(run), "--out", str(tmp_path / "jobs")])
    assert done.output == f"written: {tmp_path / 'jobs' / 'the-run'}\n"


def test_harbors_viewer_reads_it(run: Path, tmp_path: Path) -> None:
    scanner = pytest.importorskip("harbor.viewer.scanner", reason="harbor is not installed here")
    lock = pytest.importorskip("harbor.models.job.lock")
    shapes = pytest.importorskip("harbor.models.trajectories")
    job = write_job(run, tmp_path / "jobs", "job")
    found = scanner.JobScanner(tmp_path / "jobs")
    assert found.get_job_result("job").stats.n_completed_trials == 4
    assert found.get_job_config("job").n_attempts == 2
    names = found.list_trials("job")
    assert len(names) == 4
    for name in names:
        assert found.get_trial_result("job", name).trial_name == name
        assert found.get_trial_config("job", name).trial_name == name
        lock.TrialLock.model_validate_json((job / name / "lock.json").read_text())
    lock.JobLock.model_validate_json((job / "lock.json").read_text())
    for file in job.rglob("trajectory.json"):
        shapes.Trajectory.model_validate_json(file.read_text())
