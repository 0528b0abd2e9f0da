"""Write a run directory: for programs whose episodes come from elsewhere than `ale run`.

Such a run is read, credited, collected into data sets and trained on like any other. It has no
task source, so it can't be resumed by `ale run`; `Recording` itself continues one.
"""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ale._registry import Registry
from ale._run.manifest import host_facts, run_id_for, versions
from ale._run.session import Observers
from ale._store import Redactor, RunDirectory, RunReader
from ale._store.codec import encode, invalid_record
from ale.errors import AleError, InputError
from ale.types import Episode, EpisodeFinished, RunFinished, RunStarted, ScoredEpisode, Task

__all__ = ["Recording", "masked", "run_folder"]


def run_folder(name: str, runs: Path | None = None) -> Path:
    """A new run directory's path in `runs` (default: ``./runs``), by the time and a name."""
    return (runs or Path.cwd() / "runs") / run_id_for(name, time.time(), os.urandom(4).hex())


class Recording:
    """A run directory to which episodes are added, locked against other writers.

    Args:
        path: a new one, or one that was recorded before and is continued.
        config: sections of a config that say where the episodes come from; ``chunker`` is needed,
            since what reads a run cuts its episodes with it.
        registry: of the packages whose versions are stored, and whose own event hooks are called.
        observers: called with the events of the recording, each after its name.
        report: shows a message, such as that an observer failed and was dropped.

    Raises:
        InputError: there is something else at the path, such as a run of `ale run`: its
            ``llm.type`` is not that of `config`.
        StoreError: it can't be written, or another process writes to it.
    """

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Any],
        registry: Registry,
        observers: Sequence[tuple[str, object]] = (),
        report: Callable[[str], None] = print,
    ) -> None:
        self._began = time.monotonic()
        redactor = Redactor(os.environ)
        if path.exists():
            _check_recorded_so(path, config)
            self._store = RunDirectory.resume(path, redactor)
        else:
            self._store = RunDirectory.create(path, _manifest(path, config, registry), redactor)
        reader = self._store.reader
        self.path = path
        self.run_id = str(reader.manifest["run_id"])
        self._store.begin()
        self._tasks = {task.id for task in reader.tasks}
        self._rollouts: dict[str, int] = {}
        for episode in reader.episodes:
            next_one = max(self._rollouts.get(episode.task_id, 0), episode.rollout + 1)
            self._rollouts[episode.task_id] = next_one
        self.event("run_resumed" if self._rollouts else "run_started")
        self._observers = Observers(observers, registry, report)
        self._observers.notify("ale_run_started", self._started(reader.manifest["config"]))

    def next_rollout(self, task_id: str) -> int:
        """Number of the next episode of a task; it is not given again."""
        rollout = self._rollouts.get(task_id, 0)
        self.keep_rollout(task_id, rollout)
        return rollout

    def keep_rollout(self, task_id: str, rollout: int) -> None:
        """Give this number, and those below it, to no other episode of the task."""
        self._rollouts[task_id] = max(self._rollouts.get(task_id, 0), rollout + 1)

    def add(
        self,
        task: Task,
        episode: Episode,
        secrets: Collection[str] = (),
        scores: Sequence[ScoredEpisode] = (),
    ) -> Episode:
        """Store an episode, and its task where it is the first of it.

        Args:
            secrets: masked in all, beside those of this process's environment.
            scores: of chunks of the episode.

        Returns:
            the episode as it is stored.

        Raises:
            AleError: it could not be read back.
            StoreError: the disk is full; what was stored before stays readable.
        """
        if problem := invalid_record(episode):
            raise AleError(f"episode {episode.id} can't be stored: {problem}")
        if task.id not in self._tasks:
            self._store.add_task(msgspec.json.decode(masked(encode(task), secrets), type=Task))
            self._tasks.add(task.id)
        for scored in scores:
            row = msgspec.json.decode(masked(encode(scored), secrets), type=ScoredEpisode)
            self._store.add_scores(row)
        stored = msgspec.json.decode(masked(encode(episode), secrets), type=Episode)
        self._store.add_episode(stored)
        event = EpisodeFinished(episode=stored, at=time.time())
        self._observers.notify("ale_episode_finished", event)
        return stored

    def has(self, task_id: str, rollout: int) -> bool:
        """Whether this episode is stored."""
        return ("train", 0, task_id, "", rollout, None) in self._store.index

    def event(self, name: str, **facts: Any) -> None:
        """Append to the event log."""
        self._store.add_event(name, time.time(), **facts)

    def close(self, outcome: str = "completed") -> None:
        """Write how the recording ended, and release the directory."""
        self.event("run_finished", outcome=outcome)
        seconds = self._store.earlier_s + time.monotonic() - self._began
        ended = {"outcome": outcome, **self._store.index.totals(), "seconds": seconds}
        self._store.set_outcome(ended, n_tasks=len(self._tasks))
        finished = RunFinished(
            run_id=self.run_id,
            directory=str(self.path),
            outcome=outcome,
            n_expert_guided=self._store.index.expert_guided(),
            seconds=seconds,
            at=time.time(),
            **self._store.index.totals(),
        )
        self._observers.notify("ale_run_finished", finished)
        self._store.close()

    def _started(self, config: Mapping[str, Any]) -> RunStarted:
        totals = self._store.index.totals()
        return RunStarted(
            run_id=self.run_id,
            directory=str(self.path),
            n_episodes=None,
            n_done=len(self._store.index),
            n_graded=totals["n_graded"],
            n_succeeded=totals["n_succeeded"],
            n_evaluated=self._store.index.count("evaluation"),
            n_expert_guided=self._store.index.expert_guided(),
            concurrency=0,
            config=config,
            at=time.time(),
        )


def masked(data: bytes, secrets: Collection[str]) -> bytes:
    """JSON with these secrets masked in its strings; those of fewer than 8 characters stay."""
    return Redactor({f"API_KEY_{i}": secret for i, secret in enumerate(secrets)}).scrub_json(data)


def _check_recorded_so(path: Path, config: Mapping[str, Any]) -> None:
    found = (RunReader(path).manifest["config"].get("llm") or {}).get("type")
    expected = (config.get("llm") or {}).get("type")
    if found != expected:
        message = f"this run was not recorded by the same program: llm.type is {found}"
        raise InputError.of(message, file=str(path), expected=str(expected))


def _manifest(path: Path, config: Mapping[str, Any], registry: Registry) -> dict[str, Any]:
    return {
        "run_id": path.name,
        "uid": os.urandom(6).hex(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": config,
        "seed": 0,
        "n_tasks": 0,
        "n_evaluation_tasks": 0,
        "versions": versions(registry),
        "host": host_facts(),
    }
