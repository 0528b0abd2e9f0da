"""`iflow run`, `tbp run` and `rock doctor` for real, with a model behind HTTP: by number."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]
EXAMPLES = ROOT / "tasks" / "tbp_examples"
NAMED = ROOT / "configs" / "local_lmstudio.yaml"
FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}


def shell(command: str) -> dict[str, Any]:
    """A step of a scripted model: one command."""
    return {"calls": [{"name": "shell", "arguments": {"command": command}}]}


def playing(*steps: dict[str, Any]) -> dict[str, Any]:
    """A script of one conversation."""
    return {"conversations": [{"match": ".", "steps": [*steps]}]}


def named_config(desk: Any, url: str) -> str:
    """The config of the document for a server at another port, without a container."""
    text = NAMED.read_text().replace("http://127.0.0.1:1234/v1", url)
    desk.write("lite.yaml", text.replace("backend: auto", "backend: local"))
    return "lite.yaml"


def observations(episode: dict[str, Any]) -> list[dict[str, Any]]:
    turns = episode["trajectory"]["turns"]
    return [each for turn in turns for each in turn.get("observations", [])]


def stop(episode: dict[str, Any]) -> str:
    reason: str = episode["trajectory"]["stop"]["reason"]
    return reason


def completions(server: Any) -> list[dict[str, Any]]:
    """The requests for completions, without that for the list of models."""
    made = [request for request in server.requests() if request["method"] == "POST"]
    # Before the run, one token is asked of a server that lists no models.
    return [request for request in made if request["body"].get("max_tokens") != 1]


def test_s02_iflow_run_does_one_task(desk: Any, serve: Any) -> None:
    server = serve(desk.solutions(EXAMPLES))
    done = desk.iflow(str(EXAMPLES / "basics_ls.yaml"), named_config(desk, server.url))
    assert done.code == 0, done.text
    assert (desk.episode()["task_id"], desk.episode()["reward"]) == ("basics-ls", 1.0)
    assert "success      1 of 1" in done.out
    assert not list((desk.folder / "tmp").rglob("listing.txt"))


def test_an_error_of_the_check_names_an_option_that_the_program_has(desk: Any) -> None:
    config = named_config(desk, "http://127.0.0.1:9/v1")
    task = str(EXAMPLES / "basics_ls.yaml")
    refused = desk.iflow(task, config)
    assert refused.code == 2
    assert "hint      --no-checks skips this check\n" in refused.text
    assert "ale run" not in refused.text
    done = desk.run("iflow", "run", "--task", task, "--config", config, "--no-checks")
    assert done.code == 3, done.text  # it was started, and its one episode broke


def test_clock_and_ids_come_from_the_seed_if_that_is_asked_for(desk: Any, serve: Any) -> None:
    config = named_config(desk, serve(desk.solutions(EXAMPLES)).url)
    tasks = ("--tasks", str(EXAMPLES), "--config", config, "--deterministic")
    written = []
    for out in ("one", "two"):
        done = desk.run("tbp", "run", *tasks, "--out", out)
        assert done.code == 0, done.text
        (file,) = (desk.folder / out).glob("*/episodes.jsonl")
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        spent = {value for row in rows for value in row["seconds"].values()}
        written.append(([(row["id"], row["started_at"]) for row in rows], spent))
    assert written[0] == written[1]
    assert written[0][1] == {0.0}


def test_s03_tbp_run_does_every_task_of_a_folder(desk: Any, serve: Any) -> None:
    server = serve(desk.solutions(EXAMPLES))
    config = named_config(desk, server.url)
    done = desk.run("tbp", "run", "--tasks", str(EXAMPLES), "--config", config, "--out", "runs/")
    assert done.code == 0, done.text
    rewards = {name: episode["reward"] for name, episode in desk.episodes().items()}
    assert rewards == dict.fromkeys(rewards, 1.0)
    assert len(rewards) == len(list(EXAMPLES.glob("*.yaml"))) >= 8
    # One after the other, so what is stored has the order of the tasks.
    assert list(rewards) == sorted(rewards)


def test_s02_a_folder_is_no_task_and_a_missing_file_is_named(desk: Any) -> None:
    desk.config("http://127.0.0.1:9/v1")
    desk.task("there")
    refused = desk.iflow("tasks")
    assert refused.code == 2, refused.text
    refused = desk.iflow("tasks/ther.yaml")
    assert refused.code == 2
    assert f"--task: no such file or folder: {desk.folder}/tasks/ther.yaml" in refused.err
    assert "did you mean 'there.yaml'?" in refused.err
    assert not (desk.folder / "runs").exists()


def test_s08_rock_doctor_names_the_sandboxes(desk: Any) -> None:
    done = desk.run("rock", "doctor")
    assert done.code == 0, done.text
    kinds = {line.split()[1] for line in done.out.splitlines() if line.startswith("usable ")}
    assert kinds == {"sandbox"}


@pytest.mark.parametrize(
    ("limit", "value", "steps", "reason"),
    [
        ("max_steps", 2, [shell("true")] * 9, "max_steps"),
        ("max_turns", 2, [shell("true")] * 9, "max_turns"),
        ("time_limit_s", 1.5, [shell("sleep 60")], "time_limit"),
    ],
)
def test_s26_27_29_steps_turns_and_wall_clock_end_the_episode(
    desk: Any, serve: Any, limit: str, value: float, steps: Any, reason: str
) -> None:
    desk.task("t")
    desk.config(serve(steps).url, agent={limit: value})
    assert desk.iflow("tasks/t.yaml").code == 0
    assert stop(desk.episode()) == reason
    if limit != "time_limit_s":
        assert len(observations(desk.episode())) == value


def test_s28_tool_timeout_ends_the_tool_and_the_episode_goes_on(desk: Any, serve: Any) -> None:
    desk.task("t")
    server = serve(playing(shell("sleep 60"), shell("touch done"), FINISH))
    desk.config(server.url, agent={"tool_timeout_s": 1})
    assert desk.iflow("tasks/t.yaml").code == 0
    first, second, _ = observations(desk.episode())
    assert (first["timed_out"], second.get("timed_out", False)) == (True, False)
    assert (stop(desk.episode()), desk.episode()["reward"]) == ("finished", 1.0)


def test_s30_a_longer_conversation_than_the_context_is_folded(desk: Any, serve: Any) -> None:
    desk.task("t")
    # In the order of arrival: what is folded away would take a script that counts back with it.
    server = serve([shell("seq 900")] * 6 + [shell("touch done"), FINISH])
    desk.config(server.url, agent={"context_max_tokens": 4000})
    assert desk.iflow("tasks/t.yaml").code == 0
    fresh = [turn.get("fresh_context", False) for turn in desk.episode()["trajectory"]["turns"]]
    assert any(fresh[1:])
    assert desk.episode()["reward"] == 1.0
    for request in completions(server):  # the server takes a word for a token
        texts = [message["content"] or "" for message in request["body"]["messages"]]
        assert sum(len(text.split()) for text in texts) <= 4000


def test_s31_the_official_sdk_asks(desk: Any, serve: Any) -> None:
    desk.task("t")
    server = serve(playing(FINISH))
    desk.config(server.url)
    desk.iflow("tasks/t.yaml")
    headers = completions(server)[0]["headers"]
    assert headers["user-agent"].startswith("AsyncOpenAI/Python ")
    assert int(headers["x-stainless-package-version"].split(".")[0]) >= 1


@pytest.mark.parametrize("key", ["lm-studio", "sk-of-my-very-own"])
def test_s32_the_wire_has_key_model_temperature_and_max_tokens(
    desk: Any, serve: Any, key: str
) -> None:
    desk.task("t")
    server = serve(playing(shell(f"echo {key}; touch done"), FINISH))
    llm = {"api_key": key, "model": "my-model", "temperature": 0.7, "max_tokens": 99}
    desk.config(server.url, llm=llm)
    assert desk.iflow("tasks/t.yaml").code == 0
    request = completions(server)[0]
    assert request["path"] == "/v1/chat/completions"
    assert request["headers"]["authorization"] == f"Bearer {key}"
    sent = {name: request["body"][name] for name in ("model", "temperature", "max_tokens")}
    assert sent == {"model": "my-model", "temperature": 0.7, "max_tokens": 99}
    stored = b"".join(path.read_bytes() for path in desk.last_run.rglob("*") if path.is_file())
    assert (key.encode() in stored) == (key == "lm-studio")


def test_s32_the_timeout_is_kept(desk: Any, serve: Any) -> None:
    desk.task("t")
    desk.config(serve(playing({"fault": "silence"})).url, llm={"timeout_s": 0.5})
    once = ("--set", "llm.max_retries=0", "--set", "run.retries=0")
    tasks = ("--set", "tasks.type=tbp", "--set", "tasks.path=tasks")
    done = desk.run("ale", "run", "--format", "ale-lite", "lite.yaml", *tasks, *once)
    assert done.code == 3, done.text
    assert "no answer within 0.5 s" in desk.episode()["failure"]["message"]


def test_s34_each_task_has_a_folder_of_its_own_which_is_removed(desk: Any, serve: Any) -> None:
    desk.task("a")
    desk.task("b")
    desk.config(serve(playing(shell("pwd; touch done"), FINISH)).url)
    assert desk.tbp().code == 0
    seen = [observations(episode)[0]["content"] for episode in desk.episodes().values()]
    folders = {line for content in seen for line in content.splitlines() if line.startswith("/")}
    assert len(folders) == 2
    assert not any(Path(folder).exists() for folder in folders)


@pytest.mark.parametrize("network", [False, True])
def test_s36_local_clears_the_proxy_variables_in_both_cases(
    desk: Any, serve: Any, network: bool
) -> None:
    desk.task("t", 'test -z "$(cat seen)" && test -e seen')
    server = serve(playing(shell("env | grep -i proxy > seen; true"), FINISH))
    desk.config(server.url, sandbox={"backend": "local", "network": network})
    proxies = {"http_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    done = desk.iflow("tasks/t.yaml", **proxies, no_proxy="127.0.0.1")
    assert done.code == 0, done.text
    assert desk.episode()["reward"] == 1.0


def test_s37_doctor_docs_and_manifest_say_that_local_has_no_isolation(
    desk: Any, serve: Any
) -> None:
    desk.task("t")
    desk.config(serve(playing(FINISH)).url)
    desk.iflow("tasks/t.yaml")
    sandbox = desk.manifest()["sandbox"]
    assert (sandbox["type"], sandbox["capabilities"]["network_isolation"]) == ("local", False)
    noted = "commands reach what the host reaches"
    assert any(noted in note for note in sandbox["capabilities"]["notes"])
    assert noted in desk.run("rock", "doctor").out
    pages = (ROOT / "README.md", ROOT / "plugins/commands/ale-lite/README.md")
    for page in pages:
        assert re.search(r"isolates nothing|(does not|doesn't) isolate", page.read_text()), page


def test_s39_auto_is_local_without_an_engine_and_the_choice_is_recorded(
    desk: Any, serve: Any
) -> None:
    desk.task("t")
    desk.config(serve(playing(FINISH)).url, sandbox={"backend": "auto"})
    nowhere = f"unix://{desk.folder}/none.sock"
    assert desk.iflow("tasks/t.yaml", DOCKER_HOST=nowhere).code == 0
    assert desk.manifest()["sandbox"]["type"] == "local"
    assert desk.episode()["sandbox"] == "local"


def test_s40_doctor_names_each_backend_its_state_and_the_reason(desk: Any) -> None:
    nowhere = f"unix://{desk.folder}/none.sock"
    output = desk.run("rock", "doctor", DOCKER_HOST=nowhere).out
    lines = output.splitlines()
    assert lines[0].startswith("sandbox.backend: auto is local here, since docker is not usable: ")
    (docker,) = [line for line in lines if line.split()[1:3] == ["sandbox", "docker"]]
    (local,) = [line for line in lines if line.split()[1:3] == ["sandbox", "local"]]
    assert docker.startswith("UNUSABLE")
    assert str(desk.folder) in docker
    assert local.startswith("usable")
    assert "best effort: no isolation of network" in local
    assert "to make it usable: " in output


def test_the_config_is_read_by_ale_check_as_it_is(desk: Any) -> None:
    desk.task("t")
    desk.write("lite.yaml", NAMED.read_text())
    tasks = ("--set", "tasks.type=tbp", "--set", "tasks.path=tasks")
    output = desk.run("ale", "check", "lite.yaml", *tasks, DOCKER_HOST="unix:///none.sock").out
    assert "llm       openai " in output
    assert "model=local-model-name" in output
    assert "agent     iflow" in output
    assert "chunker   ale-lite" in output
    assert "credit    ipa-lite" in output
    assert "Config is valid." in output


def test_a_stored_run_is_resumed_with_the_key_of_its_file(desk: Any, serve: Any) -> None:
    desk.task("t")
    desk.config(serve(playing(FINISH)).url, llm={"api_key": "sk-of-my-very-own"})
    desk.iflow("tasks/t.yaml")
    run = os.path.relpath(desk.last_run, desk.folder)
    resumed = desk.run("ale", "run", "--resume", run)
    assert resumed.code == 0, resumed.err
    stored = "".join(path.read_text() for path in desk.last_run.rglob("*.json*"))
    assert "sk-of-my-very-own" not in stored


def test_a_stored_run_whose_file_is_gone_is_resumed_with_the_key_of_the_environment(
    desk: Any, serve: Any
) -> None:
    desk.task("t")
    file = desk.config(serve(playing(FINISH)).url, llm={"api_key": "sk-of-my-very-own"})
    desk.iflow("tasks/t.yaml")
    (desk.folder / file).unlink()
    run = os.path.relpath(desk.last_run, desk.folder)
    refused = desk.run("ale", "run", "--resume", run)
    assert refused.code == 2
    assert "ALE_LITE_API_KEY is not set" in refused.err
    assert desk.run("ale", "run", "--resume", run, ALE_LITE_API_KEY="sk-of-my-very-own").code == 0


def test_a_model_without_tool_calling_is_asked_for_calls_as_text(desk: Any, serve: Any) -> None:
    desk.task("t")
    refusal = {"fault": 400, "message": "library/gemma3:4b does not support tools"}
    call = '```tool\n{"name": "shell", "arguments": {"command": "touch done"}}\n```'
    server = serve(playing({"before": [refusal], "text": call}, {"text": "Done."}))
    desk.config(server.url)
    done = desk.iflow("tasks/t.yaml")
    assert done.code == 0, done.err
    assert done.err.count("the model takes no tools, so calls are written as text") == 1
    episode = desk.episodes()["t"]
    assert (episode["reward"], episode["trajectory"]["stop"]["detail"]) == (1.0, "Done.")
    assert [bool(request["body"].get("tools")) for request in completions(server)] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("command", ["check", "run"])
def test_ale_with_a_config_of_ale_lite_names_the_commands_that_take_one(
    desk: Any, command: str
) -> None:
    desk.config("http://127.0.0.1:9/v1")
    done = desk.run("ale", command, "lite.yaml")
    assert done.code == 2
    assert "section 'tasks' is missing" in done.err
    assert "iflow run --task FILE --config lite.yaml" in done.err
    assert "tbp run --tasks FOLDER --config lite.yaml" in done.err
