"""Each flag of ``ale art train`` changes what happens: real runs, with a model behind HTTP."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from ale_bench.art.config import KEYS, Flags

DEFAULTS = {
    "model": ("llm", "model", "Qwen/Qwen2.5-3B-Instruct"),
    "num-steps": ("run", "steps", 10),
    "batch-size": ("run", "tasks_per_step", 4),
    "max-attempts": ("agent", "max_attempts", 3),
    "dataset-split": ("tasks", "split", "train"),
    "dataset-limit": ("tasks", "limit", 100),
}


def config(desk: Any, *flags: str, **environ: str) -> Any:
    """The config that is printed."""
    done = desk.train("--print-config", *flags, **environ)
    assert done.code == 0, done.text
    return yaml.safe_load(done.out)


def bodies(server: Any) -> list[dict[str, Any]]:
    """The requests for completions."""
    return [one["body"] for one in server.requests() if one["method"] == "POST"]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: Any, new_desk: Any) -> Any:
    """The config without any flags."""
    return config(new_desk(tmp_path_factory.mktemp("desk")))


@pytest.mark.parametrize("flag", DEFAULTS)
def test_defaults(printed: Any, flag: str) -> None:
    section, key, value = DEFAULTS[flag]
    assert printed[section][key] == value


def test_without_flags_the_model_is_asked_of_vllm_and_kept_as_it_is(printed: Any) -> None:
    assert printed["llm"]["type"] == "vllm"
    assert printed["llm"]["base_url"] == "http://localhost:8000/v1"
    assert printed["trainer"] == {"type": "export"}


def test_the_default_of_the_project(desk: Any) -> None:
    pytest.importorskip("wandb")
    assert config(desk)["observers"][1]["project"] == "aviato-rl-demo"


def test_the_printed_config_is_what_is_run(desk: Any, serve: Any, script: Any) -> None:
    url = serve(script()).url
    flags = ("--base-url", url, "--num-steps", "1", "--dry-run")
    printed = config(desk, *flags)
    assert desk.train(*flags).code == 0
    stored = json.loads((desk.run / "manifest.json").read_text())["config"]
    for section in ("agent", "run", "tasks", "llm"):
        assert {key: stored[section][key] for key in printed[section]} | {"type": ""} == printed[
            section
        ] | {"type": ""}


def test_model_steps_batch_attempts_split_and_limit(desk: Any, serve: Any, script: Any) -> None:
    server = serve(script())
    done = desk.train(
        *("--base-url", server.url, "--dry-run", "--model", "scripted", "--num-steps", "3"),
        *("--batch-size", "2", "--max-attempts", "5", "--dataset-split", "test"),
        *("--dataset-limit", "2"),
    )
    assert done.code == 0, done.text
    assert {body["model"] for body in bodies(server)} == {"scripted"}
    episodes = desk.episodes
    assert [episode["step"] for episode in episodes] == [0, 0, 1, 1, 2, 2]
    assert {episode["task_id"].rpartition("-")[2] for episode in episodes} == {"11", "12"}
    turns = {len(episode["trajectory"]["turns"]) for episode in episodes}
    assert turns == {1, 5}
    assert "Problems: 2\nSteps: 3\nBatch size: 2\n" in done.err


@pytest.mark.parametrize(
    ("split", "limit", "problems"), [("train", "3", 3), ("train", "0", 4), ("validation", "0", 4)]
)
def test_a_limit_of_0_loads_every_problem_of_the_split(
    desk: Any, split: str, limit: str, problems: int, printed: Any
) -> None:
    made = config(desk, "--dataset-split", split, "--dataset-limit", limit)
    assert made["tasks"]["split"] == split
    assert made["tasks"]["limit"] == int(limit)


def test_use_openai_sends_the_key_and_asks_for_no_token_ids(
    desk: Any, serve: Any, script: Any
) -> None:
    server = serve(script())
    flags = ("--use-openai", "--base-url", server.url, "--num-steps", "1")
    done = desk.train(*flags, OPENAI_API_KEY="sk-mine", WANDB_MODE="disabled")
    assert done.code == 0, done.text
    posts = [one for one in server.requests() if one["method"] == "POST"]
    assert {one["headers"]["authorization"] for one in posts} == {"Bearer sk-mine"}
    assert not any("return_token_ids" in one["body"] for one in posts)
    assert "Training: none: a model behind OpenAI's API can't be trained here" in done.err
    rows = (desk.run / "export" / "rows.jsonl").read_text().splitlines()
    assert len(rows) == sum(len(one["trajectory"]["turns"]) for one in desk.episodes)


def test_use_openai_without_a_key_is_refused(desk: Any) -> None:
    done = desk.train("--use-openai")
    assert done.code == 2
    assert "OPENAI_API_KEY" in done.err
    assert not (desk.folder / "runs").exists()


def wandb_files(folder: Path) -> list[Path]:
    return [*folder.rglob("*.wandb")]


def test_the_project_of_wandb_is_offline_without_a_key_and_a_dry_run_sends_nothing(
    desk: Any, serve: Any, script: Any
) -> None:
    pytest.importorskip("wandb")
    url = serve(script()).url
    done = desk.train("--base-url", url, "--num-steps", "1", "--project", "mine")
    assert done.code == 0, done.text
    assert "of project mine, offline in " in done.err
    (file,) = wandb_files(desk.run)
    assert b"mine" in file.read_bytes()
    (table,) = desk.run.rglob("*.table.json")
    assert len(json.loads(table.read_text())["data"]) == 4
    dry = desk.folder / "dry"
    done = desk.train("--base-url", url, "--num-steps", "1", "--dry-run", "--out", str(dry))
    assert done.code == 0, done.text
    assert "W&B run: none" in done.err
    assert wandb_files(dry) == []


@pytest.mark.parametrize(
    ("environ", "mode"),
    [
        ({}, "offline"),
        ({"WANDB_API_KEY": "a" * 40}, "online"),
        ({"WANDB_API_KEY": "a" * 40, "WANDB_MODE": "offline"}, "offline"),
    ],
)
def test_wandb_is_online_where_a_key_is_set(desk: Any, environ: dict[str, str], mode: str) -> None:
    pytest.importorskip("wandb")
    assert config(desk, **environ)["observers"][1]["mode"] == mode


def test_wandb_is_online_after_a_login(desk: Any) -> None:
    pytest.importorskip("wandb")
    (desk.folder / ".netrc").write_text(f"machine api.wandb.ai login user password {'a' * 40}\n")
    (desk.folder / ".netrc").chmod(0o600)
    assert config(desk)["observers"][1]["mode"] == "online"


@pytest.mark.parametrize(
    "flags", [("--in-process", "--use-openai"), ("--in-process", "--base-url", "http://x/v1")]
)
def test_a_model_in_this_process_has_no_server(desk: Any, flags: tuple[str, ...]) -> None:
    done = desk.train(*flags)
    assert done.code == 2
    assert "--in-process asks no server" in done.err


def test_other_flags_reach_the_config(desk: Any) -> None:
    made = config(
        desk,
        *("--image", "python:3.11", "--rollouts", "8", "--seed", "7", "--out", "elsewhere"),
        *("--base-url", "http://host/v1"),
    )
    assert made["sandbox"] == {"type": "local", "image": "python:3.11"}
    run = made["run"]
    assert (run["rollouts"], run["concurrency"], run["seed"]) == (8, 32, 7)
    assert run["directory"] == str(desk.folder / "elsewhere")
    assert made["llm"]["base_url"] == "http://host/v1"


def test_without_the_library_of_data_sets_mbpp_by_name_says_what_to_install(
    desk: Any, serve: Any, script: Any
) -> None:
    hidden = desk.folder / "hidden" / "datasets"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError\n")
    server = serve(script())
    done = desk.train("--base-url", server.url, data=(), PYTHONPATH=str(hidden.parent))
    assert done.code == 2, done.text
    assert "--data: tasks.dataset: 'dataset' needs the library datasets" in done.err
    assert "pip install datasets" in done.err


def test_a_typed_flag_overrides_a_variable_and_a_variable_a_default(
    desk: Any, serve: Any, script: Any
) -> None:
    flags = ("--base-url", serve(script()).url, "--num-steps", "1", "--dry-run")
    variables = {"ALE_RUN__STEPS": "2", "ALE_AGENT__MAX_ATTEMPTS": "1"}
    done = desk.train(*flags, **variables)
    assert done.code == 0, done.text
    stored = json.loads((desk.run / "manifest.json").read_text())["config"]
    assert (stored["run"]["steps"], stored["agent"]["max_attempts"]) == (1, 1)
    assert "agent.max_attempts is set by ALE_AGENT__MAX_ATTEMPTS\n" in done.err
    assert "ALE_RUN__STEPS" not in done.err


def test_a_wrong_value_is_named_by_the_flag_that_was_typed(desk: Any) -> None:
    for flags, named in (
        (("--sandbox", "lokal"), "--sandbox: sandbox.type: no sandbox 'lokal'"),
        (("--image", "python:3.11"), "--image: sandbox.image: unknown option"),
        (("--set", "agent.max_attempts=x"), "--set: agent.max_attempts: "),
        (("--base-url", "host/v1"), "--base-url: 'host/v1' is no URL"),
    ):
        done = desk.train(*flags)
        assert done.code == 2, done.text
        assert named in done.err
        assert "1 problem; nothing was started." in done.err


def test_it_is_known_what_each_flag_decides() -> None:
    assert {*KEYS} == {field.name for field in attrs.fields(Flags)}


def test_set_overrides_the_config(desk: Any, serve: Any, script: Any) -> None:
    flags = ("--base-url", serve(script()).url, "--num-steps", "1", "--dry-run")
    assert desk.train(*flags, "--set", "agent.max_attempts=1").code == 0
    assert {len(episode["trajectory"]["turns"]) for episode in desk.episodes} == {1}
