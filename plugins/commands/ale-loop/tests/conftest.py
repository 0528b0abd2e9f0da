"""A loop over a toy policy, and a run directory that another program writes episodes to."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from ale.recording import Recording
from ale.runs import Registry, RunReader
from ale.testing.builders import turn
from ale.types import Episode, Stop, Task, Trajectory
from ale_loop.record import Decision, decisions
from ale_loop.running import run

PATIENCE_S = 120.0
TOY = Path(__file__).with_name("toy.py")


@frozen
class Place:
    """A folder with a loop, and what writes episodes for it."""

    folder: Path
    said: list[str] = field(factory=list)

    @property
    def config(self) -> Path:
        return self.folder / "loop.yaml"

    @property
    def directory(self) -> Path:
        return self.folder / "loop"

    def write(
        self,
        options: dict[str, Any] | None = None,
        sections: dict[str, Any] | None = None,
        **run: Any,
    ) -> Path:
        """The configs of a loop whose steps learn from two groups of two."""
        train = {
            "plugins": [str(TOY)],
            "tasks": {"type": "held-out"},
            "sandbox": {"type": "folder"},
            "llm": {"type": "number"},
            "agent": {"type": "asker"},
            "chunker": {"type": "by-turn"},
            "credit": {"type": "even"},
            "trainer": {"type": "mover"},
            "evaluation": {"tasks": {"type": "held-out"}, "rollouts": 1},
            "observers": [],
            "run": {"tasks_per_step": 2, "rollouts": 2, **run},
            **(sections or {}),
        }
        (self.folder / "train.yaml").write_text(json.dumps(train))
        loop = {
            "train": "train.yaml",
            "directory": "loop",
            "episodes": ["seen"],
            "serve": {"type": "file", "path": str(self.folder / "served")},
            "poll_s": 0.02,
        }
        self.config.write_text(json.dumps({**loop, **(options or {})}))
        return self.config

    @contextmanager
    def recording(self, name: str = "agent") -> Iterator["Giver"]:
        """What a proxy does."""
        config = {"llm": {"type": "proxy"}, "chunker": {"type": "by-turn"}}
        store = Recording(self.folder / "seen" / name, config, Registry())
        try:
            yield Giver(store)
        finally:
            store.close()

    def give(self, *rewards: float | None, name: str = "agent") -> None:
        """Episodes, two of each task."""
        with self.recording(name) as giver:
            for reward in rewards:
                giver.give(reward)

    def run(self, until: Callable[[], Any], **more: Any) -> int:
        """The loop in this process, ended by a SIGTERM as soon as `until` gives something."""
        ended = threading.Event()
        found: list[Any] = []

        def end() -> None:
            deadline = time.monotonic() + PATIENCE_S
            while not found and not ended.is_set() and time.monotonic() < deadline:
                found.extend([True] if until() else [])
                time.sleep(0.01)
            if not ended.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=end)
        thread.start()
        try:
            status = run(self.config, Registry.installed(), self.said.append, **more)
        finally:
            ended.set()
            thread.join()
        assert found, self.said
        return status

    def ends(self) -> int:
        """The exit status of the loop in this process, which ends by itself."""
        return run(self.config, Registry.installed(), self.said.append)

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """`ale loop` as a process."""
        return self._start("loop", *arguments)

    def start_run(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """`ale run` as a process."""
        return self._start("run", *arguments)

    def _start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "ale", *arguments]
        temporary = self.folder / "temporary"  # a process that is killed leaves its sandboxes here
        temporary.mkdir(exist_ok=True)
        environ = {**os.environ, "TMPDIR": str(temporary)}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=self.folder, env=environ, stdout=log, stderr=log)

    @property
    def decisions(self) -> list[Decision]:
        """What the loop has decided."""
        if not (self.directory / "manifest.json").exists():
            return []
        return decisions(RunReader(self.directory).events())

    @property
    def verdicts(self) -> list[tuple[int, str]]:
        """In short."""
        return [(each.version, each.what) for each in self.decisions]

    @property
    def served(self) -> list[tuple[int, float]]:
        """Versions and numbers that the servers were given."""
        path = self.folder / "served"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(version, round(number, 3)) for version, number in map(json.loads, lines)]

    def state(self, version: int) -> Any:
        """What the trainer saved with a version."""
        step = f"{version - 1:05d}" if version else "initial"
        return json.loads((self.directory / "checkpoints" / step / "state.json").read_text())


@frozen
class Giver:
    """Writes episodes: those of a task come in pairs."""

    store: Recording
    n: list[int] = field(factory=lambda: [0])

    def give(self, reward: float | None) -> str:
        """One more; its id."""
        task = Task(id=f"task-{self.n[0] // 2}", goal=f"Do {self.n[0] // 2}.")
        self.n[0] += 1
        rollout = self.store.next_rollout(task.id)
        episode = Episode(
            id=f"0-{task.id}-{rollout}",
            task_id=task.id,
            rollout=rollout,
            reward=reward,
            trajectory=Trajectory(turns=(turn("x", tokens=1),), stop=Stop(reason="finished")),
        )
        return self.store.add(task, episode).id


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
