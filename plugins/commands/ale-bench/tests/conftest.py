"""Stored runs, ``ale eval`` as a command, and a model behind HTTP."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from click.testing import CliRunner, Result

from ale._store import Redactor, RunDirectory
from ale.commands import Group
from ale.runs import Registry
from ale.testing.openai_server import ScriptedServer, openai_server
from ale.types import CriterionSpec, Episode, Failure, Score, Task
from ale_bench import commands

Attempt = tuple[float | None, str | None]
"""Reward (None where it broke) and answer."""


@pytest.fixture(scope="session")
def registry() -> Registry:
    return Registry.installed()


@pytest.fixture
def bench(registry: Registry) -> Callable[..., Result]:
    """``ale eval`` in this process, with any registry."""

    def call(*arguments: str, registry: Registry = registry) -> Result:
        root = Group("ale", commands=[commands.eval_])
        return CliRunner().invoke(root, ["eval", *arguments], obj=registry)

    return call


def _episode(task: str, rollout: int, attempt: Attempt) -> Episode:
    reward, answer = attempt
    failure, scores = None, ()
    if reward is None:
        failure = Failure(stage="agent", kind="LLMError", message="overloaded")
    else:
        scores = (Score(criterion="math_equal", passed=reward == 1, value=reward, answer=answer),)
    return Episode(
        id=f"0-{task}-{rollout}",
        task_id=task,
        rollout=rollout,
        reward=reward,
        failure=failure,
        scores=scores,
    )


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., Path]:
    """Store a run of MATH: the attempts at each problem by id, and its level."""

    def store(
        attempts: Mapping[str, Sequence[Attempt]],
        *,
        name: str = "run",
        k: int = 2,
        levels: Mapping[str, str] | None = None,
        expected: str = "2",
        goal: str = "What is 1 + 1?",
        tasks_per_step: int | None = None,
    ) -> Path:
        path = tmp_path / name / "20260101-000000-0000-math"
        path.parent.mkdir()
        config = {
            "tasks": {"type": "ale-tasks-benchmarks/math", "path": "MATH"},
            "llm": {"type": "ale-llm-openai/openai", "model": "small", "temperature": 0.5},
            "agent": {"type": "ale-agent-attempts/single-shot"},
            "chunker": {"type": "ale-chunkers/interaction"},
            "credit": {"type": "ale-credit/ipa"},
            "run": {"rollouts": k, "tasks_per_step": tasks_per_step},
        }
        manifest = {"schema": 1, "run_id": "run", "config": config, "n_tasks": len(attempts)}
        store = RunDirectory.create(path, {**manifest, "sandbox": {"type": "local"}}, Redactor({}))
        for task, each in attempts.items():
            criterion = CriterionSpec(type="math_equal", options={"expected": expected})
            metadata = {"level": levels[task]} if levels else {}
            store.add_task(Task(id=task, goal=goal, criteria=(criterion,), metadata=metadata))
            for rollout, attempt in enumerate(each):
                store.add_episode(_episode(task, rollout, attempt))
        store.close()
        return path.parent

    return store


@frozen
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str


@frozen
class Desk:
    """Runs commands in a folder."""

    folder: Path

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """``ale eval`` with these arguments."""
        environ |= {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "XDG_RUNTIME_DIR": str(self.folder / "runtime"),
        }
        return subprocess.Popen(
            [Path(sys.executable).with_name("ale"), "eval", *arguments],
            cwd=self.folder,
            env=environ,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def bench(self, *arguments: str, **environ: str) -> Done:
        process = self.start(*arguments, **environ)
        out, err = process.communicate(timeout=120)
        return Done(process.returncode, out, err)

    def end(self, process: subprocess.Popen[str], number: signal.Signals, *, episodes: int) -> Done:
        """Send a signal when so many episodes are stored."""
        deadline = time.monotonic() + 60
        while len(self.episodes) < episodes:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return Done(process.returncode, out, err)

    @property
    def episodes(self) -> list[dict[str, Any]]:
        """Of all runs."""
        files = [*self.folder.glob("runs/*/*/episodes.jsonl"), *self.folder.glob("out/*/ep*.jsonl")]
        return [
            json.loads(line)
            for file in files
            for line in file.read_text().splitlines(True)
            if line.endswith("\n")
        ]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


Serve = Callable[..., ScriptedServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that solves the first sample problem of GSM8K, and says 7 to the second."""
    with ExitStack() as stack:

        def start(second: Mapping[str, Any] | None = None, **more: Any) -> ScriptedServer:
            known = {"text": "7 * 15 = 105\n#### 105"}
            answers = [("Mia", known), ("pump", second or {"text": "7"})]
            conversations = [{"match": word, "steps": [{**step, **more}]} for word, step in answers]
            return stack.enter_context(openai_server({"conversations": conversations}))

        yield start
