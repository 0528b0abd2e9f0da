"""The task source ``tbp``: find, read, check for duplicates, select."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from ale.errors import InputError, Problem
from ale.strict import nearest
from ale.types import Task
from ale_tasks_tbp.options import TbpOptions
from ale_tasks_tbp.reader import Read, read_task
from ale_tasks_tbp.search import task_files


class TbpSource:
    """Reads every task below a path and selects by the options."""

    def __init__(self, options: TbpOptions) -> None:
        self._options = options

    def load(self) -> Iterator[Task]:
        """The chosen tasks, in the order of their paths.

        All files are read before the first task is given, those that the options leave out too:
        an id that stands twice, or a file that can't be read, is never missed. What is wrong is
        told after the last task, so that whoever checks the tasks sees their problems too.

        Raises:
            InputError: with every problem of every file; or nothing is left to give.
        """
        problems: list[Problem] = []
        tasks = [read.task for read in self._read_all(problems)]
        chosen = [task for task in tasks if self._is_chosen(task)][: self._options.limit]
        if not problems:
            problems += _unmatched("include", self._options.include, [task.id for task in tasks])
            problems += _unknown_tags(self._options.tags, tasks)
        if not chosen and not problems:
            problems = [Problem(message=f"the options select none of {len(tasks)} tasks")]
        yield from chosen
        if problems:
            raise InputError(problems)

    def _read_all(self, problems: list[Problem]) -> list[Read]:
        path = self._options.path.absolute()
        found: dict[str, Read] = {}
        files = 0
        for file in task_files(path, problems):
            files += 1
            try:
                read = read_task(file)
            except InputError as error:
                problems += error.problems
                continue
            first = found.setdefault(read.task.id, read)
            if first is not read:
                problems.append(_duplicate(read, first))
        if not files and not problems:
            hint = "a task is a file <id>.yaml or a folder <id>/task.yaml"
            problems.append(Problem(message="no tasks in here", file=str(path), hint=hint))
        return list(found.values())

    def _is_chosen(self, task: Task) -> bool:
        options = self._options
        return (
            (not options.include or _matches(task.id, options.include))
            and not _matches(task.id, options.exclude)
            and (not options.tags or any(tag in options.tags for tag in task.tags))
        )


def _matches(task_id: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(task_id, glob) for glob in globs)


def _duplicate(read: Read, first: Read) -> Problem:
    return Problem(
        message=f"'{read.task.id}' is already the id of {first.task.origin}:{first.line}",
        file=read.task.origin,
        line=read.line,
        path="id",
        hint="rename one of the two",
    )


def _unmatched(option: str, globs: Sequence[str], ids: Sequence[str]) -> list[Problem]:
    return [
        Problem(
            message=f"no task has an id that matches '{glob}'",
            path=option,
            hint=nearest(glob, ids),
        )
        for glob in globs
        if not any(fnmatchcase(task_id, glob) for task_id in ids)
    ]


def _unknown_tags(tags: Sequence[str], tasks: Sequence[Task]) -> list[Problem]:
    known = sorted({tag for task in tasks for tag in task.tags})
    return [
        Problem(
            message=f"no task has the tag '{tag}'",
            path="tags",
            expected="one of " + ", ".join(known) if known else None,
            hint=nearest(tag, known),
        )
        for tag in tags
        if tag not in known
    ]
