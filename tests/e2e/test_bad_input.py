"""Bad input: all problems are reported at once, and nothing is started."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFIG = """\
tasks: {type: tbp, path: tasks}
sandbx: {type: local}
llm: {type: scripted, script: script.yaml, latency: 1}
agent: {type: iflw}
credit: {type: ipa, gamma: "warm"}
run: {rollouts: 0, concurrency: 1e2, concurrency: 3}
"""
TASK = """\
id: bad
gaol: Type a wrong key.
goal: Type a right key.
setup_steps: ls
success_criteria:
  - {type: command_exit_code, command: "true", weight: -1}
"""
CRITERIA = """\
id: good
goal: Ask for what is not there.
success_criteria:
  - {type: file_contain, path: a, text: b}
  - {type: command_exit_code, comand: "true"}
  - {type: regex_in_stdout, command: ls, pattern: "("}
"""


@pytest.fixture
def refused(workshop: Any) -> Callable[..., str]:
    """Runs ``ale``, which must exit with 2 and start nothing; returns its stderr."""

    def run(*arguments: str) -> str:
        before = {path: path.stat().st_mtime_ns for path in workshop.folder.rglob("*")}
        ended = workshop.ale(*arguments)
        assert ended.code == 2, ended.text
        assert "Traceback" not in ended.text
        after = {path: path.stat().st_mtime_ns for path in workshop.folder.rglob("*")}
        assert after.keys() - before.keys() == set(), "something was started"
        made: str = ended.err
        return made

    return run


def test_every_problem_of_a_config_is_reported_with_line_path_and_nearest_name(
    workshop: Any, refused: Callable[..., str]
) -> None:
    workshop.task("t")
    workshop.write("script.yaml", "default: [Done.]")
    config = CONFIG.replace("concurrency: 1e2, ", "")
    workshop.write("bad.yaml", config)
    printed = refused("run", "bad.yaml")
    for line in (
        "bad.yaml:2: sandbx: unknown section",
        "hint      did you mean 'sandbox'?",
        "bad.yaml:3: llm.latency: unknown option",
        "hint      did you mean 'latency_s'?",
        "bad.yaml:4: agent.type: no agent 'iflw'; installed: ",
        "hint      did you mean 'iflow'?",
        'bad.yaml:5: credit.gamma: expected a number, found the text "warm"',
        "bad.yaml:6: run.rollouts: expected a value >= 1, found 0",
        "5 problems; nothing was started.",
    ):
        assert line in printed, line
    workshop.write("bad.yaml", CONFIG)
    assert "bad.yaml:6:" in refused("run", "bad.yaml")  # a key that is written twice


def test_every_problem_of_every_task_is_reported(
    workshop: Any, refused: Callable[..., str]
) -> None:
    workshop.config(agent={"type": "oracle"})
    workshop.task("fine")
    workshop.write("tasks/bad.yaml", TASK)
    workshop.write("tasks/worse.yaml", TASK.replace("bad", "worse"))
    workshop.write("tasks/twice.yaml", CRITERIA.replace("good", "fine"))
    printed = refused("run", "run.yaml")
    for line in (
        "tasks/bad.yaml:2: gaol: unknown option",
        "hint      did you mean 'goal'?",
        'tasks/bad.yaml:4: setup_steps: expected a list, found the text "ls"',
        "tasks/bad.yaml:6: success_criteria[0].weight: expected a finite number above 0",
        "tasks/twice.yaml:1: id: 'fine' is already the id of",
        "tasks/worse.yaml:2: gaol: unknown option",
    ):
        assert line in printed, line
    assert refused("check", "run.yaml") == printed.replace("; nothing was started", "")


def test_every_problem_of_every_criterion_is_reported(
    workshop: Any, refused: Callable[..., str]
) -> None:
    workshop.config(agent={"type": "oracle"})
    workshop.write("tasks/good.yaml", CRITERIA)
    printed = refused("run", "run.yaml", "--dry-run")
    for line in (
        "good.yaml:4: success_criteria[0].type: no criterion 'file_contain'; installed: ",
        "hint      did you mean 'file_contains'?",
        "good.yaml:5: success_criteria[1].comand: unknown option",
        "good.yaml:5: success_criteria[1]: 'command' is missing",
        "good.yaml:6: success_criteria[2].pattern: ",
    ):
        assert line in printed, line


def test_criteria_are_checked_even_if_other_tasks_can_not_be_read(
    workshop: Any, refused: Callable[..., str]
) -> None:
    workshop.config(agent={"type": "oracle"})
    workshop.write("tasks/bad.yaml", TASK)
    workshop.write("tasks/good.yaml", CRITERIA)
    printed = refused("run", "run.yaml")
    assert "tasks/bad.yaml:2: gaol: unknown option" in printed
    assert "good.yaml:4: success_criteria[0].type: no criterion 'file_contain'" in printed


def test_unreadable_configs_and_arguments_are_reported_in_plain_words(
    workshop: Any, refused: Callable[..., str]
) -> None:
    workshop.task("t")
    workshop.config(agent={"type": "oracle"})
    workshop.write("half.yaml", "a: [1\nb: 2")
    workshop.write("circle.yaml", "extends: circle.yaml")
    workshop.write("binary.yaml", "a: \x00")
    assert "absent.yaml: no such file" in refused("run", "absent.yaml")
    assert "half.yaml:2: not valid YAML" in refused("run", "half.yaml")
    assert "circle.yaml:1: extends: extends itself" in refused("run", "circle.yaml")
    assert "binary.yaml" in refused("run", "binary.yaml")
    assert "tasks" in refused("run", "tasks")
    assert "--set: expected key.key=value, found 'foo'" in refused(
        "run", "run.yaml", "--set", "foo"
    )
    assert (
        "give either a CONFIG (ale init writes ale.yaml, the default) or --resume DIR"
        in refused("run")
    )


def test_a_model_without_its_key_is_refused_before_anything_starts(
    workshop: Any, refused: Callable[..., str]
) -> None:
    workshop.task("t")
    workshop.config(llm={"type": "openai", "model": "m", "api_key_env": "MY_KEY"})
    printed = refused("run", "run.yaml")
    assert "llm.api_key_env: the environment variable MY_KEY is not set" in printed
    assert "export MY_KEY=..." in printed


def replace(file: str, old: str, new: str) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        text = (run / file).read_text()
        assert old in text
        (run / file).write_text(text.replace(old, new, 1))

    return damage


DAMAGES: dict[str, tuple[Callable[[Path], None], tuple[str, ...], str]] = {
    "no manifest": (
        lambda run: (run / "manifest.json").unlink(),
        ("show", "credit", "resume"),
        "not a run directory (no manifest.json)",
    ),
    "half a manifest": (
        lambda run: (run / "manifest.json").write_text('{"schema": 1,') and None,
        ("show", "credit", "resume"),
        "manifest.json: Input data was truncated",
    ),
    "another manifest": (
        lambda run: (run / "manifest.json").write_text("[]") and None,
        ("show", "credit", "resume"),
        "manifest.json: Expected `object`, got `array`",
    ),
    "a later schema": (
        replace("manifest.json", '"schema": 1', '"schema": 2'),
        ("show", "credit", "resume"),
        "manifest.json: schema: schema 2; this version of ale reads 1",
    ),
    "a part that is gone": (
        replace("manifest.json", "ale-agent-iflow/iflow", "ale-agent-iflow/gone"),
        ("resume",),
        "manifest.json: agent.type: no agent 'ale-agent-iflow/gone'; installed: attack, ",
    ),
    "an option that is gone": (
        replace("manifest.json", '"max_steps"', '"max_stops"'),
        ("resume",),
        "manifest.json: agent.max_stops: unknown option",
    ),
    "a damaged episode": (
        replace("episodes.jsonl", '"reward":1.0', '"reward":"x"'),
        ("credit", "resume"),
        "episodes.jsonl:1: reward: Expected `float | null`, got `str`",
    ),
    "garbage for an episode": (
        replace("episodes.jsonl", '{"schema"', '{"sche\x00'),
        ("credit", "resume", "replay"),
        "episodes.jsonl:1:",
    ),
    "a damaged task": (
        replace("tasks.jsonl", '"goal"', '"gaol"'),
        ("resume",),
        "tasks.jsonl:1: Object missing required field `goal`",
    ),
}
COMMANDS = {
    "show": ("show", "stored"),
    "credit": ("show", "credit", "stored", "--scheme", "ipa"),
    "resume": ("run", "--resume", "stored"),
    "replay": ("run", "run.yaml", "--replay", "stored"),
}


def test_a_damaged_run_is_refused_with_file_and_line_and_not_changed(
    workshop: Any, shell: Any, refused: Callable[..., str]
) -> None:
    workshop.task("t")
    workshop.scripted({"default": shell("touch done")})
    workshop.succeeds("run", "run.yaml")
    whole, stored = workshop.folder / "whole", workshop.folder / "stored"
    workshop.run.rename(whole)
    for name, (damage, commands, printed) in DAMAGES.items():
        shutil.copytree(whole, stored)
        damage(stored)
        left = {path.name: path.read_bytes() for path in stored.glob("*.json*")}
        for command in commands:
            assert printed in refused(*COMMANDS[command]), (name, command)
        assert {path.name: path.read_bytes() for path in stored.glob("*.json*")} == left
        shutil.rmtree(stored)
    assert "whole" in refused("show", "whol")  # the nearest name


def test_a_damaged_line_is_left_out_of_what_is_shown(workshop: Any, shell: Any) -> None:
    for name in ("a", "b"):
        workshop.task(name)
    workshop.scripted({"default": shell("touch done")})
    workshop.succeeds("run", "run.yaml")
    assert "success      2 of 2" in workshop.succeeds("show", str(workshop.run)).out
    for file in ("episodes.jsonl", "events.jsonl"):
        path = workshop.run / file
        path.write_bytes(b"\xff\n" + path.read_bytes().partition(b"\n")[2])
    lines = (workshop.run / "episodes.jsonl").read_bytes().splitlines()
    shown = workshop.ale("show", str(workshop.run))
    assert shown.code == 1, shown.text
    assert "success      1 of 1" in shown.out
    assert "missing      1 episode that the run had when it ended" in shown.out
    assert shown.err.count("left out: ") == 2
    for file in ("episodes.jsonl", "events.jsonl"):
        assert f"{file}:1: " in shown.err
    (left,) = [each["id"] for each in map(json.loads, lines[1:])]
    for wanted, code in ((left, 1), ("0-none-0", 2)):
        one = workshop.ale("show", str(workshop.run), wanted)
        assert (one.code, "episodes.jsonl:1: " in one.err) == (code, True), one.text


LATE = """\
from ale.errors import InputError
from ale.plugin import Component, hookimpl


class Late:
    def assign(self, group):
        raise InputError.of("no group has what this needs")


@hookimpl
def ale_credit_schemes():
    return [Component("late", None, lambda options, context: Late(), summary="Refuses all.")]
"""


def test_an_input_error_after_the_start_does_not_say_that_nothing_was_started(
    workshop: Any, shell: Any
) -> None:
    workshop.task("t")
    workshop.write("late.py", LATE)
    workshop.scripted(
        {"default": shell("touch done")}, credit={"type": "late"}, plugins=["late.py"]
    )
    ended = workshop.ale("run", "run.yaml")
    assert ended.code == 2, ended.text
    assert "no group has what this needs" in ended.err
    assert ended.err.endswith("1 problem.\n")
