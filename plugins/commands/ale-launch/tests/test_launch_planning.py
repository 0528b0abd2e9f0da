"""From a config and a command line to the processes of a launch."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ale.plugin import ConfigFormat, Converted, hookimpl
from ale.runs import Registry
from ale_launch.planning import Asked, prepare

PLUGIN = '''
import ale
from ale.plugin import Component, hookimpl
from ale.testing.fakes import FolderBackend
from ale.types import CriterionSpec, Task


@ale.tasks("one")
def one() -> list[Task]:
    """One task."""
    return [Task(id="t", goal="Do it.", criteria=(CriterionSpec(type="any"),))]


@ale.criterion("any")
def any_answer(answer: ale.Answer) -> float:
    """Whatever is said."""
    return 1.0


@hookimpl
def ale_sandboxes():
    return [Component("folder", None, lambda o, c: FolderBackend(), summary="A folder.")]
'''
SERVER = {
    "name": "model",
    "role": "server",
    "command": ["serve"],
    "count": 2,
    "cpus": 3,
    "gpus": 1,
    "url": "http://127.0.0.1:8000/health",
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PLUGIN)
    sections = {
        "plugins": ["mine.py"],
        "tasks": {"type": "one"},
        "sandbox": {"type": "folder"},
        "agent": {"type": "noop"},
        "observers": [],
        "launch": {"type": "no-such", "restarts": 2, "cpus": 1, "gpus": 4, "processes": [SERVER]},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(sections))
    return tmp_path / "run.yaml"


def asked(config: Path, **fields: Any) -> Asked:
    given = {"on": "local", "nodes": None, "overrides": (), "format": None, "directory": None}
    return Asked(config=config, **{**given, **fields})


def test_what_the_command_line_says_reaches_the_run(config: Path, tmp_path: Path) -> None:
    given = asked(
        config,
        overrides=("run.seed=7", "launch.type=torchrun"),
        nodes=1,
        directory=tmp_path / "one",
    )
    name, _, launch = prepare(given, Registry.installed())
    assert name == "local", "--on is the last word"
    command = [*launch.run.command]
    ale = command[command.index("run") :]
    overrides = ("run.seed=7", "launch.type=torchrun", "launch.type=local", "launch.nodes=1")
    assert ale == [
        *("run", str(config), "--directory", str(tmp_path / "one")),
        *(part for override in overrides for part in ("--set", override)),
    ]


class Wrapped:
    """A format that no key tells: every section but the plugins is below ``run``."""

    @hookimpl
    def ale_config_formats(self) -> Sequence[ConfigFormat]:
        def unwrapped(root: Any, _: object) -> Converted:
            return Converted(root=root.get("run"))

        return [ConfigFormat(name="wrapped", reads=lambda root: False, convert=unwrapped)]


def test_the_format_of_the_config_is_that_of_the_run_too(config: Path) -> None:
    sections = json.loads(config.read_text())
    config.write_text(json.dumps({"plugins": sections.pop("plugins"), "run": sections}))
    registry = Registry.installed()
    registry.add(Wrapped(), "ale-wrapped", "1.0")
    _, _, launch = prepare(asked(config, format="wrapped"), registry)
    assert launch.restarts == 2
    assert launch.run.command[-2:] == ("--format", "wrapped")


def test_the_section_says_what_is_beside_the_run_and_what_it_waits_for(config: Path) -> None:
    _, _, launch = prepare(asked(config), Registry.installed())
    assert (launch.restarts, launch.nodes, launch.run.cpus, launch.run.gpus) == (2, 1, 1, 4)
    (server,) = launch.others
    assert (server.names, server.role) == (("model-0", "model-1"), "server")
    assert (server.command, server.cpus, server.gpus) == (("serve",), 3, 1)
    python, _, ready, _, url, end, *_ = launch.run.command
    assert (python, Path(ready).name, url, end) == (sys.executable, "ready.py", SERVER["url"], "--")
