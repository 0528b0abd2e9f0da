"""``ale eval`` as a command, with a model behind HTTP."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Serve = Callable[..., Any]
GSM8K = ("gsm8k", "--sample", "--sandbox", "local", "--model", "scripted", "--base-url")


def the_run(desk: Any) -> Path:
    (manifest,) = desk.folder.glob("runs/*/*/manifest.json")
    return Path(manifest.parent)


def test_a_run_is_stored_like_any_other_and_shows_its_results(desk: Any, serve: Serve) -> None:
    url = serve().url
    done = desk.bench(*GSM8K, url, "-k", "3")
    assert done.code == 0, done.err
    title, model, _, *rows = done.out.partition("gsm8k: ")[2].splitlines()
    assert title == "2 problems, 3 samples each"
    assert model == "scripted at temperature 0.8, agent single-shot, sandbox local"
    assert [row.split()[:2] for row in rows[1:]] == [
        ["pass@1", "0.500"],
        ["pass@2", "0.500"],
        ["pass@3", "0.500"],
        ["maj@3", "0.500"],
    ]
    assert len(desk.episodes) == 6
    config = json.loads((the_run(desk) / "manifest.json").read_text())["config"]
    assert config["run"]["rollouts"] == 3
    shown = desk.bench(str(the_run(desk)))
    assert done.out.endswith(shown.out)


def test_the_printed_config_is_the_one_that_is_run(desk: Any, serve: Serve) -> None:
    flags = (*GSM8K, serve().url, "--max-tokens", "99", "--seed", "7", "--set", "run.retries=0")
    printed = desk.bench(*flags, "--print-config")
    assert not (desk.folder / "runs").exists()
    assert desk.bench(*flags, "--json").code == 0
    assert (the_run(desk).parent / "config.yaml").read_text() == printed.out
    stored = json.loads((the_run(desk) / "manifest.json").read_text())["config"]
    for section, written in yaml.safe_load(printed.out).items():
        for key, value in written.items():
            assert key == "type" or stored[section][key] == value


def test_a_typed_option_overrides_a_variable_and_a_variable_a_default(
    desk: Any, serve: Serve
) -> None:
    variables = {"ALE_RUN__ROLLOUTS": "2", "ALE_RUN__SEED": "5", "ALE_RUN__DIRECTORY": "kept"}
    done = desk.bench(*GSM8K, serve().url, "-k", "1", **variables)
    assert done.code == 0, done.err
    (manifest,) = desk.folder.glob("kept/*/*/manifest.json")
    config = json.loads(manifest.read_text())["config"]
    assert (config["run"]["rollouts"], config["run"]["seed"]) == (1, 5)
    assert "run.seed is set by ALE_RUN__SEED\n" in done.err
    assert "ALE_RUN__ROLLOUTS" not in done.err


def test_json_is_all_that_is_on_standard_output(desk: Any, serve: Serve) -> None:
    done = desk.bench(*GSM8K, serve().url, "--json")
    found = json.loads(done.out)
    assert found["tasks"]["gsm8k-test-0"] == {
        "rewards": [1.0],
        "answers": ["105"],
        "broken": 0,
        "pass_at": {"1": 1.0},
    }
    assert "completed: 2 episodes" in done.err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_same_command_continues_where_it_was_ended(
    desk: Any, serve: Serve, number: signal.Signals
) -> None:
    server = serve(delay_s=0.3)
    flags = (*GSM8K, server.url, "-k", "6", "-n", "1")
    done = desk.end(desk.start(*flags), number, episodes=2)
    before = desk.episodes
    assert 2 <= len(before) < 12
    if number == signal.SIGINT:
        assert done.code == 130
        assert "gsm8k: 2 problems, 6 samples each\n" in done.out
        assert "unfinished: " in done.out
    done = desk.bench(*flags)
    assert done.code == 0, done.err
    assert "continuing runs/gsm8k-scripted-" in done.err
    assert desk.episodes[: len(before)] == before
    assert len({each["id"] for each in desk.episodes}) == len(desk.episodes) == 12
    assert "unfinished" not in done.out
    assert the_run(desk).exists()


def test_a_folder_with_a_run_of_another_config_is_refused(desk: Any, serve: Serve) -> None:
    flags = (*GSM8K, serve().url, "--out", "out")
    assert desk.bench(*flags).code == 0
    done = desk.bench(*flags, "--temperature", "0.5")
    assert done.code == 2
    assert "out/config.yaml: this folder has a run of another config" in done.err
    assert "llm.temperature 0.0 -> 0.5" in done.err
    assert "choose another --out" in done.err
    assert len(desk.episodes) == 2


def test_other_tasks_than_those_of_the_run_are_refused_and_named(desk: Any) -> None:
    def write(id: str, solution: str) -> None:
        check = {"type": "command_exit_code", "command": "test -e done"}
        task = {"id": id, "goal": "g", "solution": [solution], "success_criteria": [check]}
        (desk.folder / "tasks").mkdir(exist_ok=True)
        (desk.folder / "tasks" / f"{id}.yaml").write_text(json.dumps(task))

    write("a", "touch done")
    write("b", "touch done")
    flags = ("tasks", "--agent", "oracle", "--sandbox", "local", "--out", "out")
    for _ in range(2):
        done = desk.bench(*flags)
        assert done.code == 0, done.err
    assert "continuing out/" in done.err
    write("a", "true")
    write("c", "touch done")
    (desk.folder / "tasks" / "b.yaml").unlink()
    done = desk.bench(*flags)
    assert done.code == 2
    assert "a run of other tasks: 'c' is new, 'a' is another one now, 'b' is gone" in done.err
    assert "choose another --out" in done.err
    assert len(desk.episodes) == 2


def test_a_folder_in_which_a_run_is_running_is_refused(desk: Any, serve: Serve) -> None:
    flags = (*GSM8K, serve(delay_s=0.3).url, "-k", "200", "-n", "1")
    process = desk.start(*flags)
    try:
        while not desk.episodes:
            assert process.poll() is None
        done = desk.bench(*flags)
        assert done.code == 1
        assert f"is in use by process {process.pid}" in done.err
    finally:
        process.kill()
        process.communicate()


def test_a_broken_attempt_is_no_failure(desk: Any, serve: Serve) -> None:
    fault = {"fault": 400, "message": "out of order"}
    done = desk.bench(*GSM8K, serve(fault).url)
    assert done.code == 3
    assert "pass@1  1.000  -                    1\n" in done.out
    assert "broken: 1 attempt without a result, not counted as failures\n  1 x agent" in done.out


def test_the_same_command_samples_broken_attempts_again_at_another_address(
    desk: Any, serve: Serve
) -> None:
    fault = {"fault": 400, "message": "out of order"}
    flags = ("-k", "2", "--out", "out")
    assert desk.bench(*GSM8K, serve(fault).url, *flags).code == 3
    graded = [each for each in desk.episodes if each["reward"] is not None]
    assert len(graded) == 2
    mended = serve().url
    done = desk.bench(*GSM8K, mended, *flags)
    assert done.code == 0, done.err
    assert "changed: llm.base_url" in done.err
    assert "pass@1  0.500" in done.out
    assert "broken" not in done.out
    assert [each for each in desk.episodes if each["reward"] is not None][:2] == graded
    assert len(desk.episodes) == 6, "two graded, two broken, and those again"
    assert desk.bench(*GSM8K, mended, *flags).code == 0
    assert len(desk.episodes) == 6


def test_a_server_that_is_not_there_is_named_and_nothing_is_left(desk: Any) -> None:
    done = desk.bench(*GSM8K, "http://127.0.0.1:9/v1")
    assert done.code == 2
    assert "cannot connect to http://127.0.0.1:9/v1" in done.err
    assert "nothing was started" in done.err
    assert [*desk.folder.glob("runs/*")] == []


def test_several_samples_at_temperature_0_are_warned_of(desk: Any, serve: Serve) -> None:
    done = desk.bench(*GSM8K, serve().url, "-k", "2", "--temperature", "0")
    assert done.code == 0
    assert "warning: at temperature 0 the 2 samples of a problem are nearly the same" in done.err
