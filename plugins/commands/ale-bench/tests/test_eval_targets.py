"""What ``ale eval`` accepts: folders of tasks, repositories, stored runs."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ale._store import Redactor, RunDirectory
from ale.errors import InputError
from ale.runs import Registry, RunReader, build_choice, changed_tasks
from ale.strict import from_plain
from ale_bench import running
from ale_bench.targets import resolve

Bench = Callable[..., Any]
TASK = {
    "id": "write",
    "goal": "Write 1 to one.txt.",
    "solution": ["echo 1 > one.txt"],
    "success_criteria": [{"type": "command_exit_code", "command": "grep -qx 1 one.txt"}],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "my tasks"
    made.mkdir()
    (made / "write.yaml").write_text(yaml.safe_dump(TASK))
    return made


def harbor_task(folder: Path) -> None:
    (folder / "tests").mkdir(parents=True)
    (folder / "environment").mkdir()
    (folder / "task.toml").write_text("[agent]\ntimeout_sec = 100\n[verifier]\ntimeout_sec = 10\n")
    (folder / "instruction.md").write_text("Do it.")
    (folder / "environment" / "Dockerfile").write_text("FROM debian\n")
    (folder / "tests" / "test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")


def printed(bench: Bench, *arguments: str) -> dict[str, Any]:
    done = bench(*arguments, "--print-config")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = yaml.safe_load(done.output)
    return found


def test_a_folder_of_tasks_is_run_without_a_config(desk: Any, folder: Path) -> None:
    done = desk.bench(
        str(folder), "--agent", "oracle", "--sandbox", "local", "-k", "2", "--out", "out"
    )
    assert done.code == 0, done.err
    assert "pass@1  1.000" in done.out
    again = desk.bench("out")
    assert "pass@1  1.000" in again.out
    assert done.out.endswith(again.out)
    assert len(desk.episodes) == 2


def test_what_ale_eval_has_written_is_no_task(desk: Any, folder: Path) -> None:
    options = ("--agent", "oracle", "--sandbox", "local")
    for place in ("out", "other"):
        done = desk.bench(str(folder), *options, "--out", str(folder / place))
        assert done.code == 0, done.err
        assert "pass@1  1.000" in done.out


def test_the_format_of_a_folder_decides_privileges_and_limits(bench: Bench, tmp_path: Path) -> None:
    harbor_task(tmp_path / "set" / "first")
    made = printed(bench, str(tmp_path / "set"), "--model", "m", "-k", "4")
    assert made["tasks"] == {"type": "harbor", "path": str(tmp_path / "set")}
    assert made["sandbox"]["type"] == "docker"
    assert made["sandbox"]["capabilities"] == ["DOCKER_DEFAULT"]
    assert made["sandbox"]["new_privileges"] is True
    assert made["sandbox"]["memory_mb"] is None
    assert made["agent"] == {"type": "iflow", "tool_timeout_s": None, "time_limit_s": None}
    assert made["run"]["grading_timeout_s"] == 3600
    assert made["run"]["rollouts"] == 4


def test_another_engine_or_agent_keeps_what_the_format_needs(bench: Bench, tmp_path: Path) -> None:
    harbor_task(tmp_path / "set" / "first")
    made = printed(bench, str(tmp_path / "set"), "--agent", "oracle", "--sandbox", "podman:cpus=1")
    assert made["sandbox"]["type"] == "podman"
    assert made["sandbox"]["cpus"] == 1
    assert made["sandbox"]["capabilities"] == ["DOCKER_DEFAULT"]
    assert made["agent"] == {"type": "oracle", "tool_timeout_s": None, "time_limit_s": None}
    assert "llm" not in made


def test_the_printed_config_is_run_by_ale_run(desk: Any, folder: Path) -> None:
    done = desk.bench(
        str(folder), "--agent", "oracle", "--sandbox", "local", "--out", "out", "--print-config"
    )
    (desk.folder / "saved.yaml").write_text(done.out)
    ale = Path(sys.executable).with_name("ale")
    ran = subprocess.run(
        [ale, "run", "saved.yaml"], cwd=desk.folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "success      1 of 1" in ran.stdout


def git(*arguments: str, cwd: Path) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=cwd, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def origin(tmp_path: Path, folder: Path) -> Path:
    """A repository of one task."""
    made = tmp_path / "hosts" / "acme" / "tasks"
    made.mkdir(parents=True)
    git("init", "-q", "-b", "main", cwd=made)
    (made / "write.yaml").write_text((folder / "write.yaml").read_text())
    git("add", ".", cwd=made)
    git("commit", "-q", "-m", "one", cwd=made)
    return made


@pytest.fixture
def host(tmp_path: Path) -> dict[str, str]:
    """Variables with which a folder takes the place of the host, by git's own configuration."""
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{tmp_path / 'hosts'}/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


def change(origin: Path, id: str) -> None:
    (origin / "write.yaml").write_text(yaml.safe_dump({**TASK, "id": id}))
    git("commit", "-q", "-am", id, cwd=origin)


FLAGS = ("--agent", "oracle", "--sandbox", "local", "--json")


def test_a_repository_is_cloned_at_a_tag_and_named_by_its_commit(
    desk: Any, origin: Path, host: dict[str, str], tmp_path: Path
) -> None:
    git("tag", "-a", "v1", "-m", "v1", cwd=origin)
    first = git("rev-parse", "HEAD", cwd=origin)
    change(origin, "later")
    done = desk.bench("acme/tasks@v1", *FLAGS, **host)
    assert done.code == 0, done.err
    assert [*json.loads(done.out)["tasks"]] == ["write"]
    assert (tmp_path / "cache/ale/tasks/acme/tasks" / first / "write.yaml").exists()
    newest = desk.bench("acme/tasks", *FLAGS, **host)
    assert [*json.loads(newest.out)["tasks"]] == ["later"]
    none = desk.bench("acme/tasks@v9", *FLAGS, **host)
    assert none.code == 2
    assert "has no branch or tag 'v9'" in none.err


def test_tasks_of_somebody_else_read_no_variable_that_is_not_named(
    desk: Any, origin: Path, host: dict[str, str]
) -> None:
    harbor_task(origin / "one")
    toml = origin / "one" / "task.toml"
    toml.write_text(toml.read_text() + '[verifier.env]\nX = "${THEIR_WISH}"\n')
    (origin / "write.yaml").unlink()
    git("add", ".", cwd=origin)
    git("commit", "-q", "-m", "one", cwd=origin)
    flags = ("acme/tasks", "--agent", "oracle", "--sandbox", "local", "--out", "out")
    refused = desk.bench(*flags, **host, THEIR_WISH="s3cret")
    assert refused.code == 2
    assert "one would read variables of this machine: THEIR_WISH" in refused.err
    assert "--set 'tasks.host_env=[THEIR_WISH]' allows it" in refused.err
    named = desk.bench(*flags, "--set", "tasks.host_env=[THEIR_WISH]", **host, THEIR_WISH="s3cret")
    assert "would read" not in named.err
    assert "s3cret" not in refused.err + named.err


def test_a_branch_whose_name_ends_like_the_wanted_one_is_not_it(
    desk: Any, origin: Path, host: dict[str, str]
) -> None:
    for name in ("zzz/main", "refs/heads/main"):
        git("checkout", "-q", "-b", name, cwd=origin)
        change(origin, "evil")
        git("checkout", "-q", "main", "--", cwd=origin)
    main = git("rev-parse", "refs/heads/main", cwd=origin)
    done = desk.bench("acme/tasks@main", *FLAGS, **host)
    assert done.code == 0, done.err
    assert [*json.loads(done.out)["tasks"]] == ["write"]
    git("update-ref", "refs/heads/x/HEAD", "refs/heads/zzz/main", cwd=origin)
    assert git("rev-parse", "HEAD", cwd=origin) == main
    assert [*json.loads(desk.bench("acme/tasks", *FLAGS, **host).out)["tasks"]] == ["write"]
    assert "has no branch or tag 'in'" in desk.bench("acme/tasks@in", *FLAGS, **host).err


def test_a_name_of_a_branch_and_of_a_tag_is_refused(
    desk: Any, origin: Path, host: dict[str, str]
) -> None:
    git("tag", "v1", cwd=origin)
    git("branch", "v1", cwd=origin)
    done = desk.bench("acme/tasks@v1", *FLAGS, **host)
    assert done.code == 2
    assert "has both a branch and a tag 'v1'" in done.err


def test_what_is_neither_is_refused_with_the_nearest_name(bench: Bench, tmp_path: Path) -> None:
    done = bench("gsm8", "--model", "m")
    assert done.exit_code == 2
    assert "did you mean 'gsm8k'?" in done.output
    done = bench(str(tmp_path), "--model", "m")
    assert "no tasks in here" in done.output
    assert "task.toml" in done.output


def test_options_of_a_run_are_refused_for_a_stored_one(
    stored: Callable[..., Path], bench: Bench
) -> None:
    run = stored({"a": [(1.0, "2")]}, name="A")
    done = bench(str(run), "-k", "4")
    assert done.exit_code == 2
    assert "-k is for a run to be made, and this one is stored" in done.output
    assert "--against compares" in bench("gsm8k", "--against", str(run)).output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("./my-task", "no such folder: ./my-task"),
        ("my-task", "no benchmark and no folder 'my-task'"),
    ],
)
def test_a_folder_that_is_not_there_is_named_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: Registry, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-tasks").mkdir()
    with pytest.raises(InputError) as refused:
        resolve(text, registry)
    assert said in str(refused.value)
    assert "did you mean 'my-tasks'" in str(refused.value)


def test_a_problem_names_what_the_user_gave(desk: Any, folder: Path) -> None:
    (folder / "write.yaml").write_text(yaml.safe_dump({**TASK, "environment": {"image": "x"}}))
    flags = (str(folder), "--agent", "oracle", "--out", "out")
    refused = desk.bench(*flags, "--sandbox", "local")
    assert refused.code == 2
    assert refused.err.startswith("--sandbox: sandbox.type: 1 task")
    absent = desk.bench(*flags, "--sandbox", "local", "--set", "tasks.tags=[absent]").err
    assert "--set: tasks.tags: no task has the tag 'absent'" in absent
    assert "--print-config" not in refused.err + absent


def test_how_a_model_is_chosen_is_said_where_none_is(bench: Bench, folder: Path) -> None:
    error = str(bench(str(folder)).output)
    assert "no model is given" in error
    for way in ("--model NAME", "--llm TYPE", "--config FILE", "--agent oracle"):
        assert way in error
    assert "no model" not in bench(str(folder), "--set", "llm.model=m", "--print-config").output


@pytest.mark.parametrize("edited", ["tests/test.sh", "environment/Dockerfile"])
def test_a_changed_file_of_a_task_is_noticed(
    tmp_path: Path, registry: Registry, edited: str
) -> None:
    harbor_task(tmp_path / "t" / "one")
    text = yaml.safe_dump({"tasks": {"type": "harbor", "path": str(tmp_path / "t")}})
    running._write_digests(tmp_path, text, registry)
    (tmp_path / "c.yaml").write_text(text + "agent: {type: oracle}\nsandbox: {type: docker}\n")
    digests = json.loads((tmp_path / "tasks.json").read_text())
    (task,) = build_choice(from_plain(yaml.safe_load(text)["tasks"]), "tasks", registry)[1].load()
    manifest = {"run_id": "r", "created": "2026-11-28T12:00:00+00:00", "config": {}, "n_tasks": 1}
    store = RunDirectory.create(tmp_path / "run", manifest, Redactor({}))
    store.add_task(task, "train")
    store.close()
    run = RunReader(tmp_path / "run")
    assert changed_tasks(run, tmp_path / "c.yaml", registry, digests) == []
    with (tmp_path / "t" / "one" / edited).open("a") as file:
        file.write("# more\n")
    changed = changed_tasks(run, tmp_path / "c.yaml", registry, digests)
    assert changed == ["'one' has other files now"]
