"""What all the task sources do: read rows, make a task of each, select."""

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from attrs import frozen

from ale.errors import InputError, Problem, nearest
from ale.types import CriterionSpec, Task
from ale_tasks_benchmarks.options import Origin, Selection
from ale_tasks_benchmarks.rows import Row, RowError, rows_of, rows_of_dataset

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
SHOWN = 20
"""Problems of one file that are reported."""


@frozen
class Benchmark:
    """A task source: rows, and what makes a task of a row (None leaves it out)."""

    options: Selection
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
            message = f"the options select none of {len(tasks)} tasks"
            raise InputError([Problem(message=message, path="tasks")])
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


def sample(name: str) -> Path:
    """A file or folder of the samples that are part of this package."""
    return Path(str(resources.files("ale_tasks_benchmarks.samples").joinpath(name)))


def rows_from(
    options: Origin,
    read: Callable[[Path], Iterator[Row]],
    sample_name: str,
    split: str,
    expected: str,
) -> Callable[[], Iterator[Row]]:
    """Where the options say that the rows are.

    Args:
        read: reads the rows at a path.
        split: of a data set.
        expected: what is expected there and where to get it, for errors.

    Raises:
        InputError: the options name no origin, or several, or a path that does not exist.
    """
    named = [
        name
        for name in ("path", "dataset", "sample")
        if getattr(options, name) not in (None, False)
    ]
    if len(named) != 1:
        found = " and ".join(named) or "none"
        raise InputError(
            [
                Problem(
                    message=f"give one of path, dataset and sample, found {found}",
                    path="tasks",
                    expected=expected,
                )
            ]
        )
    if options.dataset is not None:
        return partial(rows_of_dataset, options.dataset, options.subset, split, expected)
    path = options.path.absolute() if options.path is not None else sample(sample_name)
    check_exists(path, expected)
    return partial(read, path)


def check_exists(path: Path, expected: str) -> None:
    """Raise an `InputError` that says what belongs there, unless there is something."""
    if not path.exists():
        beside = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = nearest(path.name, beside)
        problem = Problem(
            message="there is no such file or folder", file=str(path), expected=expected, hint=hint
        )
        raise InputError([problem])


def files_of(folder: Path, endings: Sequence[str], expected: str) -> Iterator[Path]:
    """The files below a folder with one of these endings, by name; or the path, if it is a file.

    Raises:
        InputError: there are none.
    """
    if folder.is_file():
        yield folder
        return
    found = sorted(path for path in folder.rglob("*") if path.name.endswith(tuple(endings)))
    if not found:
        wanted = " or ".join(endings)
        problem = Problem(
            message=f"no file that ends with {wanted} in here", file=str(folder), expected=expected
        )
        raise InputError([problem])
    yield from found


def rows_below(path: Path, expected: str) -> Iterator[Row]:
    """The rows of a file, or of every JSON file of a folder. Raises `InputError`."""
    for file in files_of(path, (".jsonl", ".json", ".jsonl.gz"), expected):
        yield from rows_of(file, expected)


def criterion(kind: str, options: dict[str, Any], row: Row, selection: Selection) -> CriterionSpec:
    """One criterion, with what the options of the source add."""
    given = {**options, **selection.grading}
    if selection.answer != "message":
        given["answer"] = selection.answer
    return CriterionSpec(type=kind, options=given, file=row.file, line=row.line)


def goal(problem: str, instruction: str, selection: Selection) -> str:
    """The prompt: the problem, then how to answer."""
    said = instruction if selection.instruction is None else selection.instruction
    return f"{problem.strip()}\n\n{said}".strip() + "\n"


def written(answer: str, place: str) -> tuple[str, ...] | None:
    """The commands that write an answer to its file; None where it is given in a message."""
    if place == "message":
        return None
    mark = "ALE_ANSWER"
    while mark in answer:
        mark += "_"
    name = place.removeprefix("file:").replace("'", "'\\''")
    end = "" if answer.endswith("\n") else "\n"
    return (f"cat > '{name}' <<'{mark}'\n{answer}{end}{mark}\n",)
