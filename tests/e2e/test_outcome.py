"""What `ale run` says when something is wrong: before it starts, if it stops early, at its end."""

import json
import re
import time
from typing import Any

import pytest

from ale.testing.openai_server import openai_server

MODELS = {"models": [{"id": "m", "owned_by": "vllm"}]}
FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}

TRAINER = """\
from ale.plugin import Component, hookimpl
from ale.testing.fakes import FakeTrainer
from ale.types import StepReport


class Idle(FakeTrainer):
    async def step(self, batch):
        return StepReport(step=batch.step, policy_version=0, metrics={"updates": 0.0})


@hookimpl
def ale_trainers():
    return [Component("idle", None, lambda o, c: Idle(), summary="Makes no update.")]
"""


def test_causes_of_broken_episodes_are_counted(workshop: Any, shell: Any) -> None:
    workshop.task("good")
    workshop.task("bad")
    gone = [{"error": "connection refused at http://127.0.0.1:41234"}]
    workshop.scripted(
        {"tasks": {"bad": [gone], "good": [shell("touch done")]}},
        run={"rollouts": 3, "retries": 0, "stop_after_broken": 4},
    )
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 3, ended.text
    cause = "3 x agent: LLMError: connection refused at http://127.0.0.1:41234"
    assert f"  broken       3  (no reward)\n    {cause}\n" in ended.out
    assert cause in workshop.ale("show", str(workshop.run)).out


def test_training_without_an_update_is_reported_where_people_look(
    workshop: Any, shell: Any
) -> None:
    workshop.write("site/idle.py", TRAINER)
    info = "site/ale_idle-1.0.dist-info"
    workshop.write(f"{info}/METADATA", "Metadata-Version: 2.1\nName: ale-idle\nVersion: 1.0\n")
    workshop.write(f"{info}/entry_points.txt", "[ale]\nidle = idle\n")
    workshop.environ["PYTHONPATH"] = str(workshop.folder / "site")
    workshop.task("t")
    workshop.scripted(
        {"default": shell("touch done")},
        trainer={"type": "idle"},
        run={"rollouts": 2, "steps": 2},
    )
    ended = workshop.succeeds("run", "run.yaml")
    warning = "no update in any step: nothing was learned (no group had two different rewards)"
    assert f"  training     {warning}\n" in ended.out
    for step in (0, 1):
        line = f"step {step}: no group had two different rewards: nothing was learned"
        assert line in ended.err
    assert warning in workshop.ale("show", str(workshop.run)).out
    workshop.succeeds("report", str(workshop.run))
    assert warning.capitalize() in (workshop.run / "report.html").read_text()


def model(url: str, name: str = "m", **options: Any) -> dict[str, Any]:
    return {"type": "openai", "base_url": url, "model": name, **options}


def refused(workshop: Any) -> str:
    """The message of a run that is refused once and without a directory."""
    for number in range(3):
        workshop.task(f"t{number}")
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 2, ended.text
    assert (ended.out, workshop.runs) == ("", [])
    assert "Traceback" not in ended.err
    assert ended.err.endswith("1 problem; nothing was started.\n")
    assert "run.preflight: false skips this check" in ended.err
    return str(ended.err)


def test_an_unreachable_server_is_reported_before_the_run(workshop: Any) -> None:
    workshop.config(llm=model("http://127.0.0.1:9/v1"))
    assert "llm: 127.0.0.1:9: cannot connect to http://127.0.0.1:9/v1" in refused(workshop)


def test_an_unknown_model_is_reported_with_those_of_the_server(workshop: Any) -> None:
    with openai_server({"*": {"text": "hi"}, **MODELS}) as server:
        workshop.config(llm=model(server.url, "other"))
        message = refused(workshop)
    assert "other" in message
    assert "set llm.model to one of: m" in message


def test_an_unknown_model_of_any_server_is_reported_before_the_run(workshop: Any) -> None:
    """Also where nothing in the list says that the server refuses other names."""
    script = {"*": {"text": "hi"}, "models": [{"id": "m", "owned_by": "organization_owner"}]}
    with openai_server(script) as server:
        workshop.config(llm=model(server.url, "other"))
        message = refused(workshop)
    assert "set llm.model to one of: m" in message


def test_a_forgotten_v1_is_reported_before_the_run(workshop: Any) -> None:
    with openai_server({"*": {"text": "hi"}}) as server:
        workshop.config(llm=model(server.url.removesuffix("/v1")))
        message = refused(workshop)
    assert "check llm.model and llm.base_url" in message
    assert "which often ends in /v1" in message


def test_a_refused_key_is_reported_before_the_run(workshop: Any) -> None:
    with openai_server({"*": {"text": "hi"}, "models": {"fault": 401}}) as server:
        workshop.config(llm=model(server.url))
        assert "401" in refused(workshop)


@pytest.mark.engine
@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_missing_image_is_reported_before_the_run(workshop: Any, engine: str) -> None:
    sandbox = {"type": engine, "image": "ale-no-such-image:1", "pull": "never"}
    workshop.scripted({"default": [{"text": "hi"}]}, sandbox=sandbox)
    message = refused(workshop)
    assert f"get it with: {engine} pull ale-no-such-image:1" in message


def test_a_refused_resume_leaves_a_run_that_can_be_resumed(workshop: Any) -> None:
    workshop.task("t")
    with openai_server({"*": {"fault": 400}, **MODELS}) as server:
        workshop.config(llm=model(server.url), run={"stop_after_broken": 1})
        assert workshop.ale("run", "run.yaml").code == 3
    events = workshop.lines("events.jsonl")
    ended = workshop.ale("run", "--resume", str(workshop.run))
    assert (ended.code, ended.out) == (2, "")
    assert server.url in ended.err
    assert workshop.lines("events.jsonl") == events
    assert workshop.episodes() == {}
    assert workshop.ale("run", "--resume", str(workshop.run), "--no-checks").code == 3


def address_of(workshop: Any) -> Any:
    manifest = json.loads((workshop.run / "manifest.json").read_text())
    return manifest["config"]["llm"]["base_url"]


def test_a_resume_takes_another_address_and_refuses_what_enters_the_results(workshop: Any) -> None:
    workshop.task("t")
    with openai_server({"*": {"fault": 400}, **MODELS}) as server:
        workshop.config(llm=model(server.url), run={"stop_after_broken": 1})
        stopped = workshop.ale("run", "run.yaml")
        run = str(workshop.run)
    assert "no episode was graded: if the config is to be changed, start a new run" in stopped.out
    gone = workshop.ale("run", "--resume", run)
    assert (gone.code, address_of(workshop)) == (2, server.url)
    with openai_server({"*": {"text": "hi"}}) as moved:
        address = f"llm.base_url={moved.url}"
        for wrong in ("llm.model=x", "run.seed=4", "agent.max_steps=2"):
            refused = workshop.ale("run", "--resume", run, "--set", wrong, "--set", address)
            assert refused.code == 2, wrong
            assert wrong.partition("=")[0] in refused.err
            assert "start a new run with it: no episode of this one was graded" in refused.err
        workshop.succeeds("run", "--resume", run, "--set", address, "--set", "llm.max_retries=0")
    assert address_of(workshop) == moved.url
    (event,) = [
        each for each in workshop.lines("events.jsonl") if each["event"] == "config_changed"
    ]
    assert event["changes"]["llm.base_url"] == {"before": server.url, "now": moved.url}
    assert all(each["reward"] is not None for each in workshop.episodes().values())


def test_the_same_command_takes_another_address_from_its_config(workshop: Any) -> None:
    workshop.task("t")
    arguments = ("run", "run.yaml", "--directory", "runs/one")
    with openai_server({"*": {"fault": 400}, **MODELS}) as server:
        workshop.config(llm=model(server.url), run={"stop_after_broken": 1})
        assert workshop.ale(*arguments).code == 3
    with openai_server({"*": {"text": "hi"}}) as moved:
        workshop.config(llm=model(moved.url), run={"stop_after_broken": 1, "seed": 3})
        kept = workshop.ale(*arguments)
        assert kept.code == 2
        assert "not used: run.seed: 3 (saved: 0)" in kept.err
        workshop.config(llm=model(moved.url), run={"stop_after_broken": 1})
        resumed = workshop.succeeds(*arguments)
    assert f'changed: llm.base_url: "{moved.url}" (saved: "{server.url}")' in resumed.err


def test_a_run_whose_first_episodes_all_break_stops_and_samples_them_again(
    workshop: Any, shell: Any
) -> None:
    for number in range(6):
        workshop.task(f"t{number}")
    gone = [{"error": "the context of 512 tokens is too small"}]
    run = {"rollouts": 2, "concurrency": 5, "retries": 0}
    workshop.scripted({"default": gone}, run=run)
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 3, ended.text
    cause = "agent: LLMError: the context of 512 tokens is too small"
    assert ended.out.startswith("stopped: 3 episodes on disk")
    assert f"  the first 3 episodes all broke: {cause}\n" in ended.out
    assert f"ale run --resume runs/{workshop.run.name}\n" in ended.out
    assert ended.text.count("the context of 512 tokens") <= 4  # one each, and the cause
    assert cause in workshop.ale("show", str(workshop.run)).out
    assert workshop.lines("events.jsonl")[-1]["cause"] == cause

    workshop.write("script.yaml", {"default": shell("touch done")})
    ended = workshop.succeeds("run", "--resume", str(workshop.run))
    assert {episode["reward"] for episode in workshop.episodes().values()} == {1.0}
    assert len(workshop.episodes()) == 12
    assert len(workshop.lines("credits/00000.jsonl")) == 12


def test_without_checks_a_run_with_broken_episodes_ends(workshop: Any) -> None:
    workshop.task("t")
    workshop.scripted({"default": [{"error": "gone"}]}, run={"rollouts": 4, "retries": 0})
    assert workshop.ale("run", "run.yaml").out.startswith("stopped: ")
    ended = workshop.ale("run", "--resume", str(workshop.run), "--no-checks")
    assert ended.code == 3
    assert ended.out.startswith("completed: 4 episodes on disk")


TOO_LONG = {"fault": "context_length"}


def test_a_context_that_is_too_small_for_every_first_request_stops_the_run(workshop: Any) -> None:
    for number in range(5):
        workshop.task(f"t{number}")
    with openai_server({"*": TOO_LONG, **MODELS}) as server:
        workshop.config(llm=model(server.url), run={"concurrency": 1})
        ended = workshop.ale("run", "run.yaml")
    assert ended.code == 3, ended.text
    cause = "agent: ContextLengthError: the first request is too long for the model: "
    assert f"  the first 3 episodes all broke: {cause}" in ended.out
    assert "maximum context length is 4096 tokens" in ended.out
    assert "vLLM: --max-model-len" in ended.out


def test_a_context_that_is_too_small_for_one_task_is_counted_as_a_cause(workshop: Any) -> None:
    workshop.task("long")
    workshop.task("short")
    touch = {"calls": [{"name": "shell", "arguments": {"command": "touch done"}}]}
    conversations = [
        {"match": "Do long\\.", "steps": [TOO_LONG] * 9},
        {"match": "Do short\\.", "steps": [touch, FINISH]},
    ]
    with openai_server({"conversations": conversations, **MODELS}) as server:
        workshop.config(llm=model(server.url))
        ended = workshop.ale("run", "run.yaml")
    assert ended.code == 3, ended.text
    assert "  broken       1  (no reward)\n    1 x agent: ContextLengthError: " in ended.out
    assert workshop.episodes()["0-long-0"]["reward"] is None
    assert workshop.episodes()["0-short-0"]["reward"] == 1.0


def test_an_episode_whose_model_never_answers_ends_at_its_time_limit_and_is_broken(
    workshop: Any,
) -> None:
    workshop.task("t")
    with openai_server({"*": {**FINISH, "delay_s": 60}, **MODELS}) as server:
        workshop.config(
            llm=model(server.url, timeout_s=1), agent={"type": "iflow", "time_limit_s": 3}
        )
        ended = workshop.ale("run", "run.yaml")
    assert ended.code == 3, ended.text
    cause = "agent: LLMError: no answer of the model within the agent's time limit: 3 s are over"
    assert f"  broken       1  (no reward)\n    1 x {cause}\n" in ended.out
    (episode,) = workshop.episodes().values()
    assert episode["reward"] is None
    assert episode["trajectory"]["stop"]["reason"] == "time_limit"
    assert episode["earlier_failures"] == []
    assert 2.5 < episode["seconds"]["agent"] < 60


def test_the_printed_time_includes_the_start_of_the_program(workshop: Any, shell: Any) -> None:
    workshop.task("t")
    workshop.scripted({"default": shell("touch done")})
    started = time.time()
    ended = workshop.ale("run", "run.yaml")
    events = (workshop.run / "events.jsonl").read_text().splitlines()
    passed = json.loads(events[-1])["at"] - started
    found = re.search(r"on disk after ([0-9.]+) (ms|s)\n", ended.out)
    assert found, ended.out
    printed = float(found[1]) / (1000 if found[2] == "ms" else 1)
    assert printed > passed - 0.5
