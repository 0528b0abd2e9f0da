"""``ale show``: the overview of a run, and looking up one of its episodes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ale.attempts import mean
from ale.errors import InputError
from ale.runs import (
    SUCCESS,
    Causes,
    RunReader,
    adapted,
    alerts,
    ended_because,
    holder,
    learning,
    model_name,
    short_groups,
)
from ale.strict import nearest
from ale.text import counted, number, rate_line, seconds, table
from ale.types import Episode
from ale_look.inspect.acting import acting_lines
from ale_look.inspect.kinds import Kind, kind_name, kind_of, names_of
from ale_look.inspect.progress import progress_of
from ale_look.inspect.steps import evaluation_lines, steps_table, training_steps

_CAUSES = 8
_OTHERS = 8
_ALERTS = 5
_ROWS = 60
"""Rows of the table of tasks: with thousands the summary above it would scroll away."""


def find_episode(reader: RunReader, wanted: str) -> tuple[Episode, list[str]]:
    """The episode with this id, or the first that matches, and the ids of the other matches.

    Args:
        wanted: an id, the beginning of one, or a task's id.

    Raises:
        InputError: there is none.
    """
    ids: list[str] = []
    others: list[str] = []
    first: Episode | None = None
    for episode in reader.episodes:
        if episode.id == wanted:
            return episode, []
        if episode.id.startswith(wanted) or episode.task_id == wanted:
            first = first or episode
            others.append(episode.id)
        ids.append(episode.id)
    if first is None:
        file = str(reader.episodes.path)
        message = f"no episode '{wanted}' among {len(ids)}"
        hint = nearest(wanted, ids) or (f"an id is STEP-TASK-ROLLOUT: {ids[0]}" if ids else None)
        raise InputError.of(message, file=file, hint=hint)
    return first, others[1:]


def which_of(found: Episode, others: Sequence[str], wanted: str, run: Path) -> str:
    """Which of several matches is shown, and how to see the others."""
    listed = ", ".join(others[:_OTHERS]) + (", ..." if len(others) > _OTHERS else "")
    return (
        f"{found.id}, the first of {len(others) + 1} episodes that match '{wanted}'; "
        f"ale show {run} ID shows another: {listed}\n"
    )


def _state(reader: RunReader) -> str:
    pid, outcome = holder(reader.path), reader.manifest.get("outcome")
    if pid is not None:
        return f"{'paused' if reader.paused else 'running'}, in process {pid}"
    if outcome is None:
        return "interrupted: its process is gone and did not say how it ended"
    cause = ended_because(reader.events())
    why = f": {cause}" if cause else ""
    return f"{outcome['outcome']} after {seconds(outcome['seconds'])}{why}"


def overview(reader: RunReader, *, every_task: bool = False) -> str:
    """The parts of the run and its outcome; of a run that trains, a row per step and a line per
    evaluation; otherwise, or with `every_task`, a row per task.
    """
    names = names_of(reader)
    manifest, tasks = reader.manifest, _Tasks(names)
    for episode in reader.episodes:
        tasks.add(episode)
    config = manifest.get("config", {})
    picked = ", ".join(
        " ".join([section, config[section]["type"].rpartition("/")[2], *_model(config, section)])
        for section in ("sandbox", "llm", "agent", "chunker", "credit", "trainer")
        if section in config
    )
    index = reader.index()
    warning = learning(reader.events(), index).warning()
    learned = progress_of(reader.events())
    steps = training_steps(reader.events())
    evaluations = evaluation_lines(index, names["evaluation"]) if steps else []
    acting = acting_lines(manifest, steps.values())
    others = [name for name in tasks.others() if not (steps and name in tasks.held_out)]
    lines = [
        f"{manifest['run_id']}: {_state(reader)}",
        picked,
        f"success      {tasks.rate(_TRAIN)}",
        *(f"{tasks.title(name):<11}  {tasks.rate(name)}" for name in others),
        *evaluations,
        f"broken       {sum(tasks.broken.values())}",
        *([f"short groups {short}"] if (short := short_groups(reader.events())) else []),
        *([f"concurrency  {found}"] if (found := adapted(reader.events())) else []),
        *_alerts(alerts(reader.events())),
        *_timed_out(index.timed_out()),
        *_contested(index.contested()),
        *_damaged(index.damaged()),
        *_regraded(reader),
        *_missing(reader.missing(index)),
        *([f"repeated     {_repeated(index.repeated)}"] if index.repeated else []),
        *([f"training     {warning}"] if warning else []),
        *([f"reward rose  {learned.value}: {learned.reason}"] if learned else []),
        *(f"{'objective' if n == 0 else '':<13}{line}" for n, line in enumerate(acting)),
        *(["", *steps_table(steps, index, names["evaluation"], every=every_task)] if steps else []),
        *([] if steps and not every_task else ["", *_tasks_table(tasks, every=every_task)]),
    ]
    causes = [f"  {line}" for line in tasks.causes.lines(_CAUSES)]
    lines += ["", "causes of broken episodes", *causes] if causes else []
    return "\n".join(lines)


def _tasks_table(tasks: "_Tasks", *, every: bool) -> Iterator[str]:
    keys = [key for key in sorted(tasks.seen) if tasks.is_last(key)]
    shown = keys if every else keys[:_ROWS]
    yield table(
        ["task", "graded", "success", "reward", "turns", "broken"],
        [tasks.row(key) for key in shown],
        right=(1, 2, 3, 4, 5),
    )
    if more := len(keys) - len(shown):
        yield f"and {more:,} more; --all lists every task"


def _alerts(said: Sequence[str]) -> Iterator[str]:
    """The last alerts, and how many were before them."""
    earlier = len(said) - _ALERTS
    last = [f"{earlier:,} earlier alerts", *said[-_ALERTS:]] if earlier > 0 else said
    return (f"{'alerts' if n == 0 else '':<13}{line}" for n, line in enumerate(last))


def _timed_out(n: int) -> list[str]:
    return [f"timed out    {n}  (a time limit of the grading; graded)"] if n else []


def _regraded(reader: RunReader) -> list[str]:
    """The newest scores of `ale regrade`, which are not among those shown."""
    if reader.regraded is None:
        return []
    file, rewards = reader.regraded
    won = sum(reward == SUCCESS for reward in rewards.values())
    lines = [f"regraded     {won} of {len(rewards)} succeed by newer scores, which are in {file}"]
    if (others := len(reader.index()) - len(rewards)) > 0:
        lines.append(f"             {counted(others, 'episode')} without a newer score in it")
    return lines


def regraded_line(reader: RunReader, episode: str) -> str:
    """The newest reward of `ale regrade` for an episode, or nothing."""
    if (found := reader.regraded) is None:
        return ""
    file, rewards = found
    reward = rewards.get(episode)
    return "" if reward is None else f"reward {number(reward)} by newer scores, which are in {file}"


def _contested(n: int) -> list[str]:
    said = "a pass that used files the agent changed; what it counts as: run.contested"
    return [f"contested    {n}  ({said})"] if n else []


def _damaged(n: int) -> list[str]:
    return [f"damaged      {n}  (the agent damaged its sandbox; graded)"] if n else []


def _model(config: Mapping[str, Any], section: str) -> list[str]:
    """The model's name, in the section that has it."""
    name = model_name(config) if section == "llm" else None
    return [] if name is None else [name]


def lost_episodes(n: int) -> str | None:
    """Says how many episodes the run had when it ended, and has no more; None for 0."""
    lost = f"{counted(n, 'episode')} that the run had when it ended: episodes.jsonl lacks them"
    return lost if n else None


def _missing(n: int) -> list[str]:
    lost = lost_episodes(n)
    return [] if lost is None else [f"missing      {lost}"]


def _repeated(n: int) -> str:
    lines = "1 line of episodes.jsonl has" if n == 1 else f"{n} lines of episodes.jsonl have"
    return f"{lines} an episode that a later line has again: the last one counts"


_Key = tuple[str, str, int]
"""Task, what its episodes are (`_TRAIN` for the policy's own on training tasks), and the step of an
evaluation; 0 for others."""
_TRAIN = ""


def _name(episode: Episode, names: Mapping[Kind, str]) -> str:
    """Success of an expert, or from a state that it had reached, is not the policy's own."""
    if episode.split == "train" and not episode.start:
        return _TRAIN
    return kind_name(kind_of(episode), names)


class _Tasks:
    """Sums by task; one episode in memory at a time."""

    def __init__(self, names: Mapping[Kind, str]) -> None:
        self._names = names
        self.seen: dict[_Key, None] = {}
        self.rewards: dict[_Key, list[float]] = {}
        self.turns: Counter[_Key] = Counter()
        """Turns of graded episodes."""
        self.broken: Counter[_Key] = Counter()
        self.causes = Causes()
        self.held_out: set[str] = set()
        """The names in `others` that are evaluations."""
        self._steps: dict[str, set[int]] = {}

    def add(self, episode: Episode) -> None:
        name = _name(episode, self._names)
        step = episode.step if episode.split == "evaluation" else 0
        key = (episode.task_id, name, step)
        if episode.split == "evaluation":
            self.held_out.add(name)
        self._steps.setdefault(name, set()).add(step)
        self.seen[key] = None
        if episode.reward is not None:
            self.turns[key] += len(episode.trajectory.turns)
            self.rewards.setdefault(key, []).append(episode.reward)
        if episode.failure is not None:
            self.broken[key] += 1
        self.causes.add(episode)

    def is_last(self, key: _Key) -> bool:
        """Not of an evaluation that another one has followed?"""
        return key[2] == max(self._steps[key[1]])

    def others(self) -> list[str]:
        """The kinds of episodes beside the policy's own training episodes."""
        return sorted({name for _, name, _ in self.rewards if name != _TRAIN})

    def title(self, name: str) -> str:
        """The name; of several evaluations with the step of the last one."""
        steps = self._steps[name]
        return f"{name}, step {max(steps)}" if len(steps) > 1 else name

    def rate(self, name: str) -> str:
        """Success of all graded episodes of training, or of the last evaluation."""
        found = (row for key, row in self.rewards.items() if key[1] == name and self.is_last(key))
        return rate_line((len(row), sum(reward == SUCCESS for reward in row)) for row in found)

    def row(self, key: _Key) -> list[str]:
        rewards = self.rewards.get(key, [])
        shown = number(mean(rewards), 2) if rewards else "-"
        succeeded = str(sum(reward == SUCCESS for reward in rewards))
        turns = f"{self.turns[key] / len(rewards):.1f}" if rewards else "-"
        name = key[0] if key[1] == _TRAIN else f"{key[0]} ({self.title(key[1])})"
        return [name, str(len(rewards)), succeeded, shown, turns, str(self.broken[key])]
