"""One episode as a trial of Harbor: the content of its ``result.json``."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from attrs import field, frozen

from ale.types import Episode, Failure, Score, Task, Turn

_LETTERS = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_SUFFIX = 7
_LONGEST = 32
_ENGINES = ("docker", "podman")
_NO_MODEL = ("oracle", "noop")
"""Agents without a model."""


@frozen(kw_only=True)
class Step:
    """A step of an episode, or the whole episode."""

    name: str
    score: Score | None
    turns: Sequence[Turn]


@frozen(kw_only=True)
class Facts:
    """Facts shared by all trials of a job."""

    run: Path
    run_id: str
    job_id: str
    folder: Path
    """Final folder of the job."""
    agent: str
    agent_version: str
    source: str
    """Name of the data set."""
    config: Mapping[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class Trial:
    """One episode and its task."""

    facts: Facts
    episode: Episode
    task: Task
    digest: str

    @property
    def name(self) -> str:
        """Name of its folder: the task's id and a deterministic suffix."""
        text = f"{self.facts.run_id}/{self.episode.id}"
        number = int.from_bytes(hashlib.sha256(text.encode()).digest())
        letters = []
        for _ in range(_SUFFIX):
            number, place = divmod(number, len(_LETTERS))
            letters.append(_LETTERS[place])
        return f"{self.task.id[:_LONGEST].rstrip('_-')}__{''.join(letters)}"

    @property
    def place(self) -> str:
        """Path of the task's folder, if it has one."""
        return place_of(self.task)

    @property
    def model(self) -> str | None:
        """Name of the model."""
        if self.facts.agent in _NO_MODEL:
            return None
        turns = self.episode.trajectory.turns
        return next((turn.completion.model for turn in turns if turn.completion.model), None)

    @property
    def steps(self) -> list[Step]:
        """The graded steps; empty for a task without steps."""
        start, made = 0, []
        names = {step.id: _step_name(step, self.task) for step in self.task.steps}
        ends = self.episode.metadata.get("steps") or {}
        for (step, end), score in zip(ends.items(), self.episode.scores, strict=False):
            turns = self.episode.trajectory.turns[start:end]
            made.append(Step(name=names.get(step, step), score=score, turns=turns))
            start = end
        return made

    @property
    def rewards(self) -> Mapping[str, float] | None:
        """Rewards by name; None if the episode broke."""
        if self.episode.reward is None:
            return None
        graded = [self.rewards_of(step.score) for step in self.steps if step.score is not None]
        if graded:
            return graded[-1] if self.task.steps_reward == "last" else _means(graded)
        scores = self.episode.scores
        if len(scores) == 1:
            return self.rewards_of(scores[0])
        return {"reward": self.episode.reward}

    @property
    def verifier_mode(self) -> str | None:
        """Where the tests run; None if each step has its own tests, as in Harbor."""
        if self.task.steps:
            return None
        # "apart": in runs that version 0.1 has stored.
        names = ("separate_verifier", "apart")
        options = [spec.options.get(name) for spec in self.task.criteria for name in names]
        return "shared" if all(each is None for each in options) else "separate"

    def rewards_of(self, score: Score) -> Mapping[str, float]:
        """The rewards stored by the criterion, else its value."""
        if score.kept is not None:
            file = self.facts.run / score.kept / "rewards.json"
            if file.is_file():
                found: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))
                return found
        return {"reward": score.value}

    @property
    def failure(self) -> Failure | None:
        """Harbor's exception; reaching the agent's time limit is one too."""
        if self.episode.failure is not None:
            return self.episode.failure
        stop = self.episode.trajectory.stop
        if stop.reason != "time_limit":
            return None
        message = stop.detail or "the agent reached its time limit"
        return Failure(stage="agent", kind="AgentTimeoutError", message=message)

    @property
    def finished(self) -> str:
        """End time, ISO 8601."""
        return _after(self.episode.started_at, math.fsum(self.episode.seconds.values()))

    def config(self) -> dict[str, Any]:
        """Content of ``config.json``."""
        return {
            "task": {"path": self.place, "source": self.facts.source},
            "trial_name": self.name,
            "trials_dir": str(self.facts.folder),
            "agent": self._agent(),
            "environment": self._environment(),
            "job_id": self.facts.job_id,
        }

    def _agent(self) -> dict[str, Any]:
        return {"name": self.facts.agent, "model_name": self.model}

    def _environment(self) -> dict[str, Any]:
        name = self.episode.sandbox
        return {"type": name} if name in _ENGINES else {"import_path": f"ale.sandbox:{name}"}

    def lock(self) -> dict[str, Any]:
        """Content of ``lock.json``."""
        return {
            "schema_version": 2,
            "task": {
                "name": self.task.id,
                "type": "local",
                "digest": f"sha256:{self.digest}",
                "source": self.facts.source,
                "path": self.place,
            },
            "agent": self._agent(),
            "environment": self._environment(),
            "verifier": {"disable": False, "environment_mode": self.verifier_mode},
        }

    def result(self) -> dict[str, Any]:
        """Content of ``result.json``."""
        rewards, episode = self.rewards, self.episode
        steps = [self._step(step) for step in self.steps]
        return {
            "id": str(uuid5(NAMESPACE_URL, f"ale:{self.facts.run_id}/{episode.id}")),
            "task_name": str(self.task.metadata.get("name") or self.task.id),
            "trial_name": self.name,
            "trial_uri": (self.facts.folder / self.name).as_uri(),
            "task_id": {"path": self.place},
            "source": self.facts.source,
            "task_checksum": self.digest,
            "config": self.config(),
            "agent_info": {
                "name": self.facts.agent,
                "version": self.facts.agent_version,
                "model_info": _model(self.model),
            },
            "agent_result": _used(episode.trajectory.turns),
            "verifier_result": None if rewards is None else {"rewards": rewards},
            "verifier_environment_mode": self.verifier_mode,
            "exception_info": self._exception(),
            "started_at": episode.started_at or None,
            "finished_at": self.finished or None,
            **dict(self._times()),
            "step_results": steps or None,
        }

    def _step(self, step: Step) -> dict[str, Any]:
        rewards = None if step.score is None else {"rewards": self.rewards_of(step.score)}
        return {
            "step_name": step.name,
            "agent_result": _used(step.turns),
            "verifier_result": rewards,
        }

    def _exception(self) -> dict[str, Any] | None:
        failure = self.failure
        if failure is None:
            return None
        return {
            "exception_type": failure.kind,
            "exception_message": failure.message,
            "exception_traceback": failure.traceback,
            "occurred_at": self.finished or None,
        }

    def _times(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Times of the stages, placed one after another."""
        began, passed = self.episode.started_at, 0.0
        seconds = self.episode.seconds
        stages = (
            ("environment_setup", ("sandbox", "setup")),
            ("agent_setup", ()),
            ("agent_execution", ("agent",)),
            ("verifier", ("grading",)),
        )
        for name, parts in stages if began else ():
            if any(part in seconds for part in parts) or not parts:
                start = _after(began, passed)
                passed += math.fsum(seconds.get(part, 0.0) for part in parts)
                yield name, {"started_at": start, "finished_at": _after(began, passed)}


def place_of(task: Task) -> str:
    """The folder of a task that has one, else its origin, else its id."""
    origin = Path(task.origin)
    if origin.name in ("task.toml", "task.yaml"):
        return str(origin.parent)
    return task.origin or task.id


def _step_name(step: Task, task: Task) -> str:
    """The name of the step in its task if a folder can have it, else its id."""
    name = str(step.metadata.get("step") or "")
    return name if name and Path(name).name == name else step.id.removeprefix(f"{task.id}.")


def _means(graded: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Means of each reward over all steps; a missing reward counts as 0, as in Harbor."""
    names = dict.fromkeys(name for rewards in graded for name in rewards)
    return {
        name: math.fsum(rewards.get(name, 0.0) for rewards in graded) / len(graded)
        for name in names
    }


def _after(began: str, seconds: float) -> str:
    if not began:
        return ""
    return (datetime.fromisoformat(began) + timedelta(seconds=seconds)).isoformat()


def _model(name: str | None) -> dict[str, Any] | None:
    if name is None:
        return None
    provider, slash, rest = name.partition("/")
    return {"name": rest, "provider": provider} if slash else {"name": name, "provider": None}


def _used(turns: Sequence[Turn]) -> dict[str, Any]:
    usages = [turn.completion.usage for turn in turns]
    return {
        "n_input_tokens": sum(usage.prompt_tokens for usage in usages) or None,
        "n_output_tokens": sum(usage.completion_tokens for usage in usages) or None,
    }
