"""A desk: the scripts of this package in a folder of their own, and a model behind HTTP."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from attrs import field, frozen

from ale.testing.openai_server import ScriptedServer, openai_server

FINISH = {"calls": [{"name": "finish", "arguments": {"summary": "done"}}]}


@frozen
class Done:
    """A script that has ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@frozen
class Desk:
    """Writes files and runs scripts among them."""

    folder: Path
    environ: dict[str, str] = field(factory=dict)

    def write(self, name: str, content: Any) -> Path:
        """Text as it stands; everything else as JSON, which is YAML."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def task(self, id: str, command: str = "test -e done", **more: Any) -> Path:
        criteria = [{"type": "command_exit_code", "command": command}]
        task = {"id": id, "goal": f"Do {id}.", "success_criteria": criteria, **more}
        return self.write(f"tasks/{id}.yaml", task)

    def config(self, server: str, **sections: Mapping[str, Any]) -> Path:
        """A config of ALE-lite for a server, in the local sandbox unless it says otherwise."""
        content = {"llm": {"base_url": server}, "sandbox": {"backend": "local"}}
        for name, section in sections.items():
            content[name] = {**content.get(name, {}), **section}
        return self.write("lite.yaml", content)

    def run(self, *command: str, timeout_s: float = 120.0, **environ: str) -> Done:
        """Run one of the scripts, or ``ale``."""
        script = Path(sys.executable).with_name(command[0])
        whole = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(self.folder / "runtime"),
            "TMPDIR": str(self.folder / "tmp"),
        }
        (self.folder / "tmp").mkdir(exist_ok=True)
        done = subprocess.run(
            [str(script), *command[1:]],
            cwd=self.folder,
            env=whole | self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def iflow(self, task: str, config: str = "lite.yaml", **environ: str) -> Done:
        return self.run("iflow", "run", "--task", task, "--config", config, **environ)

    def tbp(self, config: str = "lite.yaml", **environ: str) -> Done:
        tasks = ("--tasks", "tasks", "--config", config, "--out", "runs/")
        return self.run("tbp", "run", *tasks, **environ)

    @property
    def last_run(self) -> Path:
        (run,) = (self.folder / "runs").iterdir()
        return run

    def manifest(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads((self.last_run / "manifest.json").read_text())
        return made

    def episodes(self) -> dict[str, dict[str, Any]]:
        """The episodes of the only run, by task."""
        lines = (self.last_run / "episodes.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        return {row["task_id"]: row for row in rows}

    @staticmethod
    def solutions(folder: Path) -> dict[str, Any]:
        """A script that says every task's reference solution, then finishes."""
        conversations = []
        for path in sorted(folder.glob("*.yaml")):
            task = yaml.safe_load(path.read_text())
            calls = [{"name": "shell", "arguments": {"command": c}} for c in task["solution"]]
            pattern = r"\s+".join(map(_literal, task["goal"].split()[:6]))
            steps = [*({"calls": [call]} for call in calls), FINISH]
            conversations.append({"match": pattern, "steps": steps})
        return {"conversations": conversations}

    def episode(self) -> dict[str, Any]:
        (row,) = self.episodes().values()
        return row


def _literal(text: str) -> str:
    return "".join(c if c.isalnum() else "\\" + c for c in text)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture(scope="session")
def new_desk() -> type[Desk]:
    """For fixtures that last longer than a test."""
    return Desk


Serve = Callable[[Any], ScriptedServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that plays a script; it ends with the test."""
    with ExitStack() as stack:
        yield lambda script: stack.enter_context(openai_server(script))
