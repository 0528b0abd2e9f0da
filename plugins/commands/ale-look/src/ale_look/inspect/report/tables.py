"""Rows of the tables of tasks and of starts."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ale_look.inspect.kinds import KINDS, Kind, kind_name
from ale_look.inspect.report.gathering import Facts, Sums

_ROWS = 1000
_POINTS = 8
"""Points of a task's small curve."""


class TaskRow(NamedTuple):
    """One task."""

    id: str
    goal: str
    badge: str
    """The kind of episodes, where they are not training episodes."""
    sums: Sums
    over_steps: list[float]
    """Success over steps."""
    kind: Kind = "train"


def task_rows(facts: Facts, most: int = _ROWS) -> dict[str, Any]:
    """A row per task and kind of episode, up to `most`."""
    keys = sorted(facts.by_task, key=_order)
    return {
        "tasks": [_task(facts, key) for key in keys[:most]],
        "n_tasks": len(keys),
        "trained": len({step for _, step in facts.by_step}) > 1,
    }


def _order(key: tuple[Kind, str]) -> tuple[int, Kind, str]:
    return (list(KINDS).index(key[0].partition(" ")[0]), *key)


def _task(facts: Facts, key: tuple[Kind, str]) -> TaskRow:
    kind, task_id = key
    return TaskRow(
        id=task_id,
        goal=facts.goals.get(task_id, ""),
        badge="" if kind == "train" else kind_name(kind, facts.names),
        sums=facts.by_task[key],
        over_steps=_over_steps(facts, key),
        kind=kind,
    )


def _over_steps(facts: Facts, key: tuple[Kind, str]) -> list[float]:
    steps = facts.task_steps.get(key, {})
    made = []
    for found in ranges(sorted(steps), _POINTS):
        part = [steps[step] for step in found]
        made.append(sum(won for won, _ in part) / sum(of for _, of in part))
    return made


def ranges(steps: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """Ranges of one step each; of more where there are more than `most`."""
    size = -(-len(steps) // most) or 1
    for start in range(0, len(steps), size):
        yield steps[start : start + size]


def start_rows(facts: Facts) -> dict[str, Any]:
    """Task, start and sums; none where every rollout began at its task's beginning."""
    tasks_with = {task_id for task_id, start in facts.by_start if start}
    keys = [key for key in sorted(facts.by_start) if key[0] in tasks_with]
    rows = [(*key, facts.by_start[key]) for key in keys[:_ROWS]]
    return {"starts": rows, "n_starts": len(keys)}
