"""Writes a run as a Harbor job: one folder, atomically."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from ale.errors import InputError
from ale.files import replacing, store_errors
from ale.runs import RunReader
from ale.types import Episode, Score, Split, Task, Trajectory, Turn, replace
from ale_look.results.job.digest import digest_of
from ale_look.results.job.stats import Stats
from ale_look.results.job.trial import Facts, Trial, place_of
from ale_rows import EpisodeRow
from ale_rows.exchange.atif_out import write_episode


def write_job(run: Path, jobs: Path, name: str | None = None, split: Split = "train") -> Path:
    """Write the attempts that start at their task's beginning as one job; returns its folder.

    Args:
        run: a run directory.
        jobs: the folder of jobs.
        name: of the job; default: the run's id.

    Raises:
        InputError: not a run, no such episode, or the job exists.
        StoreError: it can't be written.
    """
    reader = RunReader(run)
    folder = jobs.absolute() / (name or str(reader.manifest["run_id"]))
    if folder.exists():
        hint = "remove it, or choose another name with --name"
        raise InputError.of("the job already exists", file=str(folder), hint=hint)
    with store_errors(folder), replacing(folder, private=True) as draft:
        draft.mkdir()
        _Writer(reader, folder, draft, split).write()
    return folder


class _Writer:
    def __init__(self, reader: RunReader, folder: Path, draft: Path, split: Split) -> None:
        manifest, config = reader.manifest, reader.manifest["config"]
        package, _, agent = str(config.get("agent", {}).get("type", "ale")).rpartition("/")
        tasks = config.get("tasks", {})
        path = tasks.get("path")
        self._reader = reader
        self._split = split
        self._draft = draft
        self._facts = Facts(
            run=reader.path,
            run_id=str(manifest["run_id"]),
            job_id=str(uuid5(NAMESPACE_URL, f"ale:{manifest['run_id']}")),
            folder=folder,
            agent=agent,
            agent_version=str(manifest.get("versions", {}).get(package, "unknown")),
            source=Path(path).name if path else str(tasks.get("type", "adhoc")),
            config=config,
        )
        stored = reader.tasks if split == "train" else reader.evaluation_tasks
        self._tasks: dict[str, Task] = {task.id: task for task in stored}
        self._digests = {
            task.id: digest_of(task, Path(place_of(task))) for task in self._tasks.values()
        }

    def write(self) -> None:
        """All of it.

        Raises:
            InputError: there is no episode.
        """
        stats, locks = Stats(), []
        times: list[str] = []
        with (self._draft / "job.log").open("w", encoding="utf-8") as log:
            for episode in self._reader.episodes:
                if episode.split != self._split or episode.start:
                    continue
                trial = self._trial(episode)
                result = trial.result()
                self._write_trial(trial, result)
                stats.add(trial, result)
                locks.append(trial.lock())
                times += [time for time in (episode.started_at, trial.finished) if time]
                log.write(f"{trial.finished} {trial.name}: {_outcome(trial)}\n")
        if not stats.n:
            message = f"no episode of the split '{self._split}'"
            raise InputError.of(message, file=str(self._reader.episodes.path))
        began, ended = min(times, default=""), max(times, default="")
        created = str(self._reader.manifest.get("created") or began)
        job = {
            "id": self._facts.job_id,
            "started_at": began or created,
            "updated_at": ended or created,
            "finished_at": ended or created,
            "n_total_trials": stats.n,
            "stats": stats.plain(),
        }
        options = self._facts.config.get("run", {})
        _json(self._draft / "result.json", job)
        _json(self._draft / "config.json", self._config(stats.attempts, options))
        lock = {
            "schema_version": 3,
            "created_at": created,
            "n_concurrent_trials": self._at_once(options),
            "retry": {"max_retries": options.get("retries", 0)},
            "trials": locks,
        }
        _json(self._draft / "lock.json", lock)

    def _trial(self, episode: Episode) -> Trial:
        # A run stores a task before any of its episodes.
        task = self._tasks[episode.task_id]
        return Trial(facts=self._facts, episode=episode, task=task, digest=self._digests[task.id])

    def _config(self, attempts: int, options: Mapping[str, Any]) -> dict[str, Any]:
        path = self._facts.config.get("tasks", {}).get("path")
        return {
            "job_name": self._facts.folder.name,
            "jobs_dir": str(self._facts.folder.parent),
            "n_attempts": attempts,
            "n_concurrent_trials": self._at_once(options),
            "agents": [{"name": self._facts.agent}],
            "datasets": [{"path": path}] if path else [],
        }

    def _at_once(self, options: Mapping[str, Any]) -> int:
        """Number of trials at once: of an adaptive run, the largest."""
        if (given := options.get("concurrency", 1)) != "auto":
            return int(given)
        changes = (each for each in self._reader.events() if each["event"] == "concurrency")
        return max((each["limit"] for each in changes), default=1)

    def _write_trial(self, trial: Trial, result: Mapping[str, Any]) -> None:
        folder = self._draft / trial.name
        folder.mkdir()
        _json(folder / "config.json", trial.config())
        _json(folder / "lock.json", trial.lock())
        _json(folder / "result.json", result)
        (folder / "trial.log").write_text(_outcome(trial) + "\n", encoding="utf-8")
        failure = trial.failure
        if failure is not None:
            text = failure.traceback or f"{failure.kind}: {failure.message}\n"
            (folder / "exception.txt").write_text(text, encoding="utf-8")
        scores = trial.episode.scores
        if not trial.steps:
            self._write_part(folder, trial, trial.episode.trajectory.turns, scores)
        for step in trial.steps:
            place = folder / "steps" / step.name
            step_scores = () if step.score is None else (step.score,)
            self._write_part(place, trial, step.turns, step_scores)

    def _write_part(
        self, folder: Path, trial: Trial, turns: Sequence[Turn], scores: Sequence[Score]
    ) -> None:
        """Write the trajectory and the output of the tests."""
        (folder / "agent").mkdir(parents=True)
        (folder / "verifier").mkdir()
        (folder / "artifacts").mkdir()
        if turns:
            stop = trial.episode.trajectory.stop
            part = replace(trial.episode, trajectory=Trajectory(turns=tuple(turns), stop=stop))
            row = EpisodeRow(run=self._facts.run_id, episode=part)
            _json(folder / "agent" / "trajectory.json", write_episode(row))
        entries: list[dict[str, Any]] = []
        for score in scores:
            if score.kept is not None:
                entries += _copied(self._facts.run / score.kept, folder)
            if not any((folder / "verifier").iterdir()):
                text = f"{score.criterion}: {score.detail}\n"
                (folder / "verifier" / "test-stdout.txt").write_text(text, encoding="utf-8")
        _json(folder / "artifacts" / "manifest.json", entries)


def _copied(stored: Path, folder: Path) -> list[dict[str, Any]]:
    """Copy the files that a criterion stored; returns the entries of its artifacts."""
    for file in (stored / "test-stdout.txt", *sorted((stored / "logs").glob("*"))):
        if file.is_dir():
            shutil.copytree(file, folder / "verifier" / file.name, symlinks=True)
        elif file.is_file():
            shutil.copyfile(file, folder / "verifier" / file.name)
    listed = stored / "artifacts" / "manifest.json"
    if not listed.is_file():
        return []
    shutil.copytree(stored / "artifacts", folder / "artifacts", symlinks=True, dirs_exist_ok=True)
    made = []
    for entry in json.loads(listed.read_text(encoding="utf-8")):
        place = str(entry.get("destination") or entry["source"]).strip("/")
        is_folder = (stored / "artifacts" / place).is_dir()
        made.append(
            {
                "source": entry["source"],
                "destination": f"artifacts/{place}",
                "type": "directory" if is_folder else "file",
                "status": "ok" if entry["status"] == "ok" else "failed",
            }
        )
    return made


def _outcome(trial: Trial) -> str:
    failure = trial.failure
    if trial.episode.reward is None:
        return "broken" if failure is None else f"{failure.stage}: {failure.message}"
    return f"reward {trial.episode.reward:g}"


def _json(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
