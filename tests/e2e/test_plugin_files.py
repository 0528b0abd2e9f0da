"""A plugin of one file that a config names, and overrides that change a section's type."""

import hashlib
import json
from typing import Any

AGENT = """\
from ale.plugin import Component, hookimpl


def build(options, context):
    from ale_agent_oracle.noop import NoopAgent
    return NoopAgent()


@hookimpl
def ale_agents():
    return [Component("mine", None, build, summary="Does nothing.")]
"""


def test_a_run_with_a_plugin_file_can_be_checked_run_and_resumed(workshop: Any) -> None:
    for name in ("a", "b"):
        workshop.task(name, check="true")
    file = workshop.write("parts/mine.py", AGENT)
    workshop.config(agent={"type": "mine"}, plugins=["parts/mine.py"])
    assert "agent     mine" in workshop.ale("check", "run.yaml").out
    workshop.succeeds("run", "run.yaml")
    manifest = json.loads((workshop.run / "manifest.json").read_text())
    assert manifest["config"]["plugins"] == [str(file)]
    assert manifest["config"]["agent"]["type"] == "mine.py/mine"
    assert manifest["plugins"] == {str(file): hashlib.sha256(AGENT.encode()).hexdigest()}

    episodes = workshop.run / "episodes.jsonl"
    episodes.write_text(episodes.read_text().splitlines(keepends=True)[0])
    resumed = workshop.succeeds("run", "--resume", str(workshop.run))
    assert len(workshop.episodes()) == 2
    assert "has changed" not in resumed.err

    workshop.write("parts/mine.py", AGENT + "\n")
    changed = workshop.succeeds("run", "--resume", str(workshop.run))
    assert f"{file} has changed since the run started" in changed.err

    file.unlink()
    gone = workshop.ale("run", "--resume", str(workshop.run))
    assert gone.code == 2
    assert "manifest.json: plugins[0]: no such file" in gone.err


SCHEME = """
from ale.plugin import Component, hookimpl
from ale.testing.fakes import FakeCreditScheme


@hookimpl
def ale_credit_schemes():
    return [Component("mine", None, lambda o, c: FakeCreditScheme(), summary="The reward.")]
"""


def test_the_scheme_of_a_plugin_file_is_compared_with_others_on_stored_episodes(
    workshop: Any,
) -> None:
    workshop.task("t", check="true")
    file = workshop.write("mine.py", SCHEME)
    workshop.config(agent={"type": "echo"}, credit={"type": "mine"}, plugins=["mine.py"])
    workshop.succeeds("run", "run.yaml")
    compared = workshop.succeeds(
        "show", "credit", str(workshop.run), "--scheme", "mine", "--scheme", "ipa"
    )
    assert "mine" in compared.out
    file.unlink()
    workshop.succeeds("show", "credit", str(workshop.run), "--scheme", "ipa")
    gone = workshop.ale("show", "credit", str(workshop.run), "--scheme", "mine")
    assert "manifest.json: plugins[0]: no such file" in gone.err


def test_a_plugin_file_is_loaded_for_the_config_that_names_it_only(workshop: Any) -> None:
    workshop.task("t", check="true")
    workshop.write("mine.py", AGENT)
    workshop.config(agent={"type": "mine"})
    assert "no agent 'mine'" in workshop.ale("check", "run.yaml").err
    workshop.succeeds("check", "run.yaml", "--set", "plugins=[mine.py]")


def test_a_new_sandbox_type_reports_the_options_that_it_drops_once(workshop: Any) -> None:
    workshop.task("t", check="true")
    root = {"root": str(workshop.space)}
    workshop.config(
        agent={"type": "noop"}, sandbox={"type": "bubblewrap", "writable_system": True, **root}
    )
    done = workshop.succeeds("check", "run.yaml", "--set", "sandbox.type=local")
    assert done.err.splitlines() == [
        "--set sandbox.type=local: dropped sandbox.writable_system, which local does not have"
    ]
    assert f"sandbox   local          root={workshop.space}" in done.out


def test_an_override_in_the_words_of_another_format_works(workshop: Any) -> None:
    workshop.task("t", check="true")
    workshop.write("lite.yaml", "sandbox: {backend: docker}\nllm: {api_key: lm-studio}\n")
    tasks = ("--set", "tasks.type=tbp", "--set", "tasks.path=tasks")
    done = workshop.succeeds("check", "lite.yaml", *tasks, "--set", "sandbox.backend=local")
    assert "sandbox   local" in done.out
    refused = workshop.ale("check", "lite.yaml", *tasks, "--set", "sandbox.backend=lokal")
    assert refused.code == 2
    assert "--set: sandbox.backend: expected one of auto, docker, local" in refused.err


def test_a_replay_reports_no_dropped_options_of_the_model(workshop: Any, shell: Any) -> None:
    workshop.task("t")
    workshop.scripted({"default": shell("touch done")})
    workshop.succeeds("run", "run.yaml")
    workshop.config(llm={"type": "openai", "model": "m", "max_retries": 1})
    done = workshop.succeeds("run", "run.yaml", "--replay", str(workshop.run))
    assert "dropped" not in done.err
