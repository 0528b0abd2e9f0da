"""Records of a run as rows of the tables."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ale.types import Episode, Task, Turn
from ale.workers import WORKER

Row = dict[str, Any]
LONGEST_TEXT = 32_000
"""Characters of a turn that are stored and searched: half of them from its beginning, half from its
end."""
_LONGEST_ERROR = 500


def plain(text: str) -> str:
    """Text that every database can hold: no NUL, no half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def digest(text: str) -> str:
    """SHA-256, by which equal texts are stored once."""
    return hashlib.sha256(text.encode()).hexdigest()


def number(value: float | None) -> float | None:
    """A number that can be compared: NaN and infinities are no value."""
    return value if value is not None and math.isfinite(value) else None


def epoch(text: str) -> float:
    """Seconds since the epoch of an ISO 8601 time, in UTC if it names no zone; 0 for none."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def task_row(task: Task) -> Row:
    """A task: equal ones of several runs are one row."""
    prompt = plain(task.goal or "\n\n".join(step.goal for step in task.steps))
    row = {"task_id": plain(task.id), "prompt": prompt, "origin": plain(task.origin)}
    return {**row, "sha256": digest(json.dumps([*row.values()]))}


def settings_of(config: Mapping[str, Any]) -> dict[str, str]:
    """A config as dotted keys: ``credit.gamma`` is ``0.95``; a `type` is its short name.

    An empty list or mapping is ``[]`` or ``{}``.
    """
    return dict(_flat(config, ""))


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from _flat(child, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for i, child in enumerate(value):
            yield from _flat(child, f"{path}[{i}]")
    elif isinstance(value, str):
        yield path, plain(value.rpartition("/")[2] if path.endswith("type") else value)
    else:
        yield path, json.dumps(value)


def episode_row(episode: Episode, model: str) -> Row:
    """The row of an episode, without the ids of others.

    Args:
        model: of the run's config, for an episode whose completions name none.
    """
    turns = episode.trajectory.turns
    named = (turn.completion.model for turn in turns if turn.completion.model)
    failure = episode.failure
    versions = (v for turn in turns if (t := turn.completion.tokens) for v in t.policy_versions)
    return {
        "episode_id": plain(episode.id),
        "task_id": plain(episode.task_id),
        "split": episode.split,
        "step": episode.step,
        "start": plain(episode.start),
        "rollout": episode.rollout,
        "seed": episode.seed,
        "temperature": episode.temperature,
        "reward": number(episode.reward),
        "model": plain(next(named, model)),
        "stop": episode.trajectory.stop.reason,
        "failure": None if failure is None else failure.stage,
        "sandbox": plain(episode.sandbox),
        "worker": _worker(episode),
        "started": epoch(episode.started_at),
        "seconds": sum(episode.seconds.values()),
        "n_turns": len(turns),
        "n_calls": sum(len(turn.observations) for turn in turns),
        "n_errors": sum(map(_errors, turns)),
        "prompt_tokens": sum(turn.completion.usage.prompt_tokens for turn in turns),
        "completion_tokens": sum(turn.completion.usage.completion_tokens for turn in turns),
        "policy_version": min(versions, default=None),
        "details": plain(json.dumps(dict(episode.metadata), default=str)),
    }


def _worker(episode: Episode) -> str | None:
    name = episode.metadata.get(WORKER)
    return plain(name) if isinstance(name, str) else None


def _errors(turn: Turn) -> int:
    return sum(observation.error is not None for observation in turn.observations)


def turn_rows(episode: Episode) -> Iterator[Row]:
    """The rows of an episode's turns."""
    for i, turn in enumerate(episode.trajectory.turns):
        completion = turn.completion
        yield {
            "turn": i,
            "model": plain(completion.model),
            "finish_reason": completion.finish_reason,
            "text": turn_text(turn),
            "n_calls": len(turn.observations),
            "n_errors": _errors(turn),
            "prompt_tokens": completion.usage.prompt_tokens,
            "completion_tokens": completion.usage.completion_tokens,
            "seconds": turn.duration_s,
        }


def turn_text(turn: Turn) -> str:
    """The words of a turn: its prompt without the system's, the answer, calls, observations."""
    parts = [message.content for message in turn.prompt if message.role != "system"]
    answer = turn.completion.message
    parts += [answer.reasoning or "", answer.content]
    parts += [f"{call.name} {call.arguments}" for call in answer.tool_calls]
    parts += [observation.content for observation in turn.observations]
    text = plain("\n".join(filter(None, parts)))
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n...\n{text[-half:]}"


def score_rows(episode: Episode) -> Iterator[Row]:
    """The rows of an episode's scores."""
    for i, score in enumerate(episode.scores):
        yield {
            "position": i,
            "criterion": plain(score.criterion),
            "passed": score.passed,
            "value": score.value,
            "weight": score.weight,
            "detail": plain(score.detail),
            "answer": None if score.answer is None else plain(score.answer),
            "contested": number(score.contested),
        }


def tool_rows(episode: Episode) -> Iterator[Row]:
    """For each tool that an episode used, how often, and how often in vain."""
    calls: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for turn in episode.trajectory.turns:
        for observation in turn.observations:
            calls[plain(observation.tool)] += 1
            errors[plain(observation.tool)] += observation.error is not None
    for tool, n in calls.items():
        yield {"tool": tool, "n_calls": n, "n_errors": errors[tool]}


def errors_of(episode: Episode) -> list[str]:
    """The different errors of an episode: why it is broken, and those of its tool calls."""
    found: dict[str, None] = {}
    if episode.failure is not None:
        failure = episode.failure
        found[plain(f"{failure.stage}: {failure.kind}: {failure.message}")[:_LONGEST_ERROR]] = None
    for turn in episode.trajectory.turns:
        for observation in turn.observations:
            if observation.error is not None:
                found[plain(f"{observation.tool}: {observation.error}")[:_LONGEST_ERROR]] = None
    return [*found]
