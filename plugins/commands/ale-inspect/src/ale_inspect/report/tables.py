"""Rows of the tables of tasks and of starts."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ale_inspect.report.gathering import Facts, Kind, Sums

KINDS: Mapping[Kind, str] = {
    "train": "training",
    "evaluation": "held out",
    "started": "expert start",
    "shown": "demonstration",
}
"""Their names in the page."""
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


def task_rows(facts: Facts) -> dict[str, Any]:
    """A row per task and kind of episode."""
    keys = sorted(facts.by_task, key=lambda key: (list(KINDS).index(key[0]), key[1]))
    return {
        "tasks": [_task(facts, key) for key in keys[:_ROWS]],
        "n_tasks": len(keys),
        "trained": len({step for _, step in facts.by_step}) > 1,
    }


def _task(facts: Facts, key: tuple[Kind, str]) -> TaskRow:
    kind, task_id = key
    return TaskRow(
        id=task_id,
        goal=facts.goals.get(task_id, ""),
        badge="" if kind == "train" else KINDS[kind],
        sums=facts.by_task[key],
        over_steps=_over_steps(facts, key),
    )


def _over_steps(facts: Facts, key: tuple[Kind, str]) -> list[float]:
    steps = facts.task_steps.get(key, {})
    ordered = sorted(steps)
    size = -(-len(ordered) // _POINTS) or 1
    made = []
    for start in range(0, len(ordered), size):
        part = [steps[step] for step in ordered[start : start + size]]
        made.append(sum(won for won, _ in part) / sum(of for _, of in part))
    return made


def start_rows(facts: Facts) -> dict[str, Any]:
    """Task, start and sums; none where every rollout began at its task's beginning."""
    tasks_with = {task_id for task_id, start in facts.by_start if start}
    keys = [key for key in sorted(facts.by_start) if key[0] in tasks_with]
    rows = [(*key, facts.by_start[key]) for key in keys[:_ROWS]]
    return {"starts": rows, "n_starts": len(keys)}
