"""``ale show``: what a run was and how it went; and one of its episodes, found by name."""

import re
from collections import Counter

from ale.errors import InputError, Problem
from ale.runs import SUCCESS, RunReader
from ale.strict import nearest
from ale.text import rate_line, seconds, shorten, table
from ale.types import Episode

_CAUSES, _CAUSE_WIDTH = 8, 200
_VARYING = re.compile(r"\b[0-9a-f]{8,}\b|(?<=:)[0-9]{4,5}\b|\b[0-9]+\.[0-9]+\b")
"""Ids, ports and seconds: they differ where the cause is the same; a status does not."""


def find_episode(reader: RunReader, wanted: str) -> Episode:
    """The episode that is meant.

    Raises:
        InputError: there is none.
    """
    ids: list[str] = []
    first: Episode | None = None
    for episode in reader.episodes:
        if episode.id == wanted:
            return episode
        if first is None and (episode.id.startswith(wanted) or episode.task_id == wanted):
            first = episode
        ids.append(episode.id)
    if first is None:
        file = str(reader.episodes.path)
        message = f"no episode '{wanted}' among {len(ids)}"
        raise InputError([Problem(message=message, file=file, hint=nearest(wanted, ids))])
    return first


def overview(reader: RunReader) -> str:
    """What the run was, how it went, and a line per task."""
    manifest, tasks = reader.manifest, _Tasks()
    for episode in reader.episodes:
        tasks.add(episode)
    config = manifest.get("config", {})
    picked = ", ".join(
        f"{section} {config[section]['type'].rpartition('/')[2]}"
        for section in ("sandbox", "llm", "agent", "chunker", "credit", "trainer")
        if section in config
    )
    outcome = manifest.get("outcome") or {"outcome": "not ended", "seconds": 0.0}
    rewards = [reward for row in tasks.rewards.values() for reward in row]
    lines = [
        f"{manifest['run_id']}: {outcome['outcome']} after {seconds(outcome['seconds'])}",
        picked,
        f"success      {rate_line(sum(r == SUCCESS for r in rewards), len(rewards))}",
        f"broken       {sum(tasks.broken.values())}",
        "",
        table(
            ["task", "graded", "success", "reward", "turns", "broken"],
            [tasks.row(task_id) for task_id in sorted(tasks.seen)],
            right=(1, 2, 3, 4, 5),
        ),
    ]
    if tasks.causes:
        lines += ["", "broken because"]
        common = tasks.causes.most_common(_CAUSES)
        lines += [f"  {count} x  {tasks.examples[cause]}" for cause, count in common]
        left = tasks.causes.total() - sum(count for _, count in common)
        lines += [f"  {left} x  for other reasons"] if left else []
    return "\n".join(lines)


class _Tasks:
    """Sums by task; one episode in memory at a time."""

    def __init__(self) -> None:
        self.seen: dict[str, None] = {}
        self.rewards: dict[str, list[float]] = {}
        self.turns: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, episode: Episode) -> None:
        self.seen[episode.task_id] = None
        self.turns[episode.task_id] += len(episode.trajectory.turns)
        if episode.reward is not None:
            self.rewards.setdefault(episode.task_id, []).append(episode.reward)
        if episode.failure is not None:
            self.broken[episode.task_id] += 1
            said = f"{episode.failure.stage}: {shorten(episode.failure.message, _CAUSE_WIDTH)}"
            cause = _VARYING.sub("*", said)
            self.causes[cause] += 1
            self.examples.setdefault(cause, said)

    def row(self, task_id: str) -> list[str]:
        rewards = self.rewards.get(task_id, [])
        n = len(rewards) + self.broken[task_id]
        mean = f"{sum(rewards) / len(rewards):.2f}" if rewards else "-"
        succeeded = str(sum(reward == SUCCESS for reward in rewards))
        turns = f"{self.turns[task_id] / n:.1f}"
        return [task_id, str(len(rewards)), succeeded, mean, turns, str(self.broken[task_id])]
