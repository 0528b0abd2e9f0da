"""Writes every event of a run, and of what the run stores its hash."""

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from attrs import asdict

from ale.plugin import hookimpl
from ale.types import (
    EpisodeFinished,
    EpisodeStage,
    EvaluationFinished,
    RunFinished,
    RunStarted,
    RunSteered,
    StepFinished,
)
from ale_observe_audit.chain import NAME, Chain
from ale_observe_audit.options import AuditOptions

EPISODES = "episodes.jsonl"
FILES = ("tasks.jsonl", "evaluation_tasks.jsonl")
"""Files that a run writes before it starts, and never after."""


def config_sha256(run: Path) -> str | None:
    """The hash of the config in a run's manifest; None where there is no manifest."""
    try:
        manifest = json.loads((run / "manifest.json").read_bytes())
    except FileNotFoundError:
        return None
    return hashlib.sha256(json.dumps(manifest["config"], sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str | None:
    """The hash of a file; None where there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _facts(event: Any, *without: str) -> dict[str, Any]:
    return {name: value for name, value in asdict(event).items() if name not in without}


class Auditor:
    """No free text of a model, a tool or an error is written, so no secret of theirs is."""

    def __init__(self, options: AuditOptions) -> None:
        self._options = options
        self._chain: Chain | None = None
        self._episodes = Path()
        self._read = 0
        """Size of the stored episodes, as far as they are written here."""

    @hookimpl
    def ale_run_started(self, event: RunStarted) -> None:
        """Open the file, and repair it if a killed process wrote it last."""
        run = Path(event.directory)
        self._chain = Chain(run / NAME, fsync=self._options.fsync, at=event.at)
        self._episodes = run / EPISODES
        self._read = self._episodes.stat().st_size if self._episodes.exists() else 0
        self._chain.append(
            "run_started",
            event.at,
            run_id=event.run_id,
            n_done=event.n_done,
            episodes_bytes=self._read,
            config_sha256=config_sha256(run),
            files={name: file_sha256(run / name) for name in FILES},
        )

    def _append(self, event: str, at: float, **facts: Any) -> None:
        if self._chain is not None:
            self._chain.append(event, at, **facts)

    @hookimpl
    def ale_episode_stage(self, event: EpisodeStage) -> None:
        """Write it."""
        self._append("episode_stage", event.at, episode=event.episode_id, stage=event.stage)

    @hookimpl
    def ale_episode_finished(self, event: EpisodeFinished) -> None:
        """Write what became of the episode, and where and how it is stored."""
        episode = event.episode
        failure = episode.failure
        self._append(
            "episode_finished",
            event.at,
            episode=episode.id,
            task=episode.task_id,
            split=episode.split,
            step=episode.step,
            reward=episode.reward,
            failure=None if failure is None else f"{failure.stage}: {failure.kind}",
            stored=self._stored(),
        )

    def _stored(self) -> dict[str, Any] | None:
        """The line of the episode: it is written before the event."""
        try:
            with self._episodes.open("rb") as file:
                file.seek(self._read)
                line = file.readline()
        except FileNotFoundError:
            return None
        if not line.endswith(b"\n"):
            return None
        at, self._read = self._read, self._read + len(line)
        return {"at": at, "bytes": len(line), "sha256": hashlib.sha256(line).hexdigest()}

    @hookimpl
    def ale_step_finished(self, event: StepFinished) -> None:
        """Write the report."""
        report = event.report
        metrics = {
            name: float(value) if math.isfinite(value) else None
            for name, value in report.metrics.items()
        }
        self._append(
            "step_finished",
            event.at,
            step=report.step,
            policy_version=report.policy_version,
            metrics=metrics,
        )

    @hookimpl
    def ale_evaluation_finished(self, event: EvaluationFinished) -> None:
        """Write its result."""
        self._append("evaluation_finished", event.at, **_facts(event, "at"))

    @hookimpl
    def ale_run_steered(self, event: RunSteered) -> None:
        """Write what was asked of the run."""
        self._append("run_steered", event.at, **_facts(event, "at"))

    @hookimpl
    def ale_run_finished(self, event: RunFinished) -> None:
        """Write the outcome, and close the file."""
        self._append("run_finished", event.at, **_facts(event, "at", "directory"))
        if self._chain is not None:
            self._chain.close()
