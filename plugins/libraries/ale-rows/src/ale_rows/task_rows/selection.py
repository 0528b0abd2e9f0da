"""A task source over rows: make a task of each, and choose some of the tasks."""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from attrs import frozen

from ale.errors import InputError, Problem, nearest
from ale.types import Task
from ale_rows.task_rows.options import Choice
from ale_rows.task_rows.rows import Row, RowError

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
SHOWN = 20
"""Problems of one file that are reported."""


@frozen
class RowTasks:
    """A task source: rows, and what makes a task of a row (None leaves it out)."""

    options: Choice
    rows: Callable[[], Iterator[Row]]
    make: Callable[[Row], Task | None]

    def load(self) -> Iterator[Task]:
        """The chosen tasks, in the order of the file or shuffled by the seed.

        Everything is read first, so that no mistake is missed.

        Raises:
            InputError: rows that can't be used, ids that stand twice, or nothing left to give.
        """
        tasks: dict[str, Task] = {}
        problems: list[Problem] = []
        for row in self.rows():
            try:
                task = self.make(row)
            except RowError as error:
                problems.append(error.problem)
                continue
            if task is not None and tasks.setdefault(task.id, task) is not task:
                problems.append(row.problem(f"the id '{task.id}' stands twice").problem)
        if problems:
            raise InputError(problems[:SHOWN])
        yield from self._chosen(list(tasks.values()))

    def _chosen(self, tasks: list[Task]) -> Sequence[Task]:
        options = self.options
        ids = [task.id for task in tasks]
        problems = [
            *_unknown("ids", options.ids, ids),
            *_unknown("held_out", options.held_out, ids),
        ]
        if problems:
            raise InputError(problems)
        chosen = [
            task
            for task in tasks
            if (not options.ids or _matches(task.id, options.ids))
            and not _matches(task.id, options.held_out)
        ]
        if not chosen:
            raise InputError.of(f"the options select none of {len(tasks)} tasks", path="tasks")
        if options.shuffle:
            # Only random() of it is promised to give the same numbers in every version of Python.
            draw = random.Random(options.seed).random  # noqa: S311
            chosen = [task for _, _, task in sorted((draw(), i, t) for i, t in enumerate(chosen))]
        return chosen[: options.limit or None]


def _matches(task_id: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(task_id, glob) for glob in globs)


def _unknown(option: str, globs: Iterable[str], ids: Sequence[str]) -> list[Problem]:
    return [
        Problem(message=f"no task has the id '{glob}'", path=f"tasks.{option}", hint=hint)
        for glob in globs
        if not any(fnmatchcase(task_id, glob) for task_id in ids)
        for hint in [nearest(glob, ids)]
    ]


def safe_id(text: str) -> str:
    """A text as an id, which may be the name of a file."""
    return _UNSAFE.sub("-", text).strip("-.") or "task"
