"""Write configs/examples.script.yaml: what the scripted model of examples.yaml says.

    python tests/e2e/examples_script.py

It is made from the tasks' reference solutions, so that the first run needs no model: of the four
rollouts of a task one works step by step, one sends several calls at once, one slips and recovers,
and one stops before it is done and mostly fails. A test holds that the file is up to date.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ale.plugin import BuildContext
from ale.types import Task
from ale_tasks_tbp.plugin import ale_task_sources

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "configs" / "examples.script.yaml"
HEAD = """\
# What the scripted model of examples.yaml says. Made from the tasks' reference solutions by
# tests/e2e/examples_script.py; it knows the answers, and has never seen a question.
"""

Turn = dict[str, Any]


def shell(command: str) -> dict[str, Any]:
    """A call of the tool `shell`."""
    return {"name": "shell", "arguments": {"command": command}}


def finish(summary: str) -> Turn:
    """The last turn."""
    return {"calls": [{"name": "finish", "arguments": {"summary": summary}}]}


def step_by_step(solution: tuple[str, ...]) -> list[Turn]:
    """A look around, then a command a turn."""
    look = {"text": "I look at what is there.", "calls": [shell("ls -A")]}
    return [look, *({"calls": [shell(line)]} for line in solution), finish("Done, step by step.")]


def at_once(solution: tuple[str, ...]) -> list[Turn]:
    """All commands in one turn."""
    return [
        {"text": "I know what to do.", "calls": [shell(line) for line in solution]},
        finish("Done at once."),
    ]


def after_a_slip(solution: tuple[str, ...]) -> list[Turn]:
    """A command that fails, and a tool that is not there, before the right ones."""
    wrong = {"text": "There may be notes.", "calls": [shell("cat NOTES.txt")]}
    absent = {"calls": [{"name": "open_browser", "arguments": {"url": "about:blank"}}]}
    return [wrong, absent, *step_by_step(solution)[1:-1], finish("Done, after a slip.")]


def too_early(solution: tuple[str, ...]) -> list[Turn]:
    """Everything but the last command."""
    return [*step_by_step(solution)[:-2], finish("I believe that is all.")]


WAYS = (step_by_step, at_once, after_a_slip, too_early)


def tasks() -> Iterator[Task]:
    """The example tasks."""
    (component,) = ale_task_sources()
    assert component.options is not None
    yield from component.build(component.options(path=ROOT / "tasks"), BuildContext()).load()


def script() -> dict[str, Any]:
    """The whole script."""
    made: dict[str, Any] = {"model": "scripted-demo", "tasks": {}}
    for number, task in enumerate(tasks()):
        assert task.solution is not None, task.id
        # The ways are dealt out anew for each task: no rollout is the good one.
        order = [WAYS[(number + i) % len(WAYS)] for i in range(len(WAYS))]
        made["tasks"][task.id] = [way(task.solution) for way in order]
    return made


def text() -> str:
    """The file's content."""
    body: str = yaml.dump(script(), sort_keys=False, allow_unicode=True, width=100, indent=1)
    return HEAD + body


if __name__ == "__main__":
    TARGET.write_text(text())
