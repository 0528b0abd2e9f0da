"""The task source ``harbor``: finds task folders, reads and selects tasks, reports the others."""

import logging
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase

from ale.errors import InputError, Problem
from ale.plugin import BuildContext
from ale.strict import nearest, nearest_file
from ale.text import counted
from ale.types import Task, replace
from ale_tasks_harbor import harbor, terminal_bench
from ale_tasks_harbor.folder import Folder
from ale_tasks_harbor.options import KEPT_PROCESSES, HarborOptions
from ale_tasks_harbor.solution import WITHOUT
from ale_tasks_harbor.values import MISSPELT, task_id
from ale_tasks_harbor.variables import HostVariables, resolved

_LOG = logging.getLogger(__name__)
_SHOWN = 20
_READERS = {harbor.FILE: harbor.read, terminal_bench.FILE: terminal_bench.read}


class HarborSource:
    """Reads every task folder below a path."""

    def __init__(self, options: HarborOptions, context: BuildContext) -> None:
        self._options = options
        # `os.environ` decodes a variable each time that it is read.
        self._environ = HostVariables(context.environ)
        self._key = "".join(context.new_id() for _ in range(4))
        """Signs the tasks' records."""
        self._taken: dict[str, list[str]] = {}
        """Names of the host's variables that tasks read, by id."""
        self.refused: list[Problem] = []
        """Why folders that `include` and `exclude` leave were left out in the last `load`."""

    def load(self) -> Iterator[Task]:
        """The chosen tasks, in the order of their paths.

        A folder that can't be run is left out with a warning, or is an error: see `invalid`.

        Raises:
            InputError: there is no task at the path, none is selected, or a glob matches none.
        """
        options = self._options
        self.refused = []
        tasks = list(self._readable())
        chosen = [task for task in tasks if self._is_chosen(task)][: options.limit]
        # Where folders were refused, theirs may be the id that is missing.
        problems = [] if chosen and self.refused else _unmatched(options.include, tasks)
        if not chosen and tasks:
            problems += self._without(tasks)
        if options.invalid == "error" or not chosen:
            problems += self.refused
        elif self.refused:
            _LOG.warning("%s", self._left_out())
        if not chosen and not problems:
            problems = [Problem(message=f"none of {len(tasks)} tasks is left by the options")]
        self._warn_of(chosen)
        yield from chosen
        if problems:
            raise InputError(problems)

    def _warn_of(self, chosen: Sequence[Task]) -> None:
        for key in (key for task in chosen for key in task.metadata.get(MISSPELT, ())):
            _LOG.warning("%s", key)
        for part in (part for task in chosen for part in (task, *task.steps)):
            if WITHOUT in part.metadata:
                _LOG.warning("%s has no solution here: %s", part.id, part.metadata[WITHOUT])
        for task in chosen:
            if names := self._taken.get(task.id):
                _LOG.warning("%s reads variables of this machine: %s", task.id, ", ".join(names))

    def _without(self, tasks: Sequence[Task]) -> list[Problem]:
        """Why none of these tasks is chosen: tags and difficulties that none has."""
        found = [("tags", tag, "tag") for tag in self._options.tags]
        found += [("difficulty", each, "difficulty") for each in self._options.difficulty]
        known = {
            "tags": {tag for task in tasks for tag in task.tags},
            "difficulty": {str(task.metadata["difficulty"]) for task in tasks},
        }
        return [
            Problem(
                message=f"no task has the {noun} '{name}'",
                path=option,
                hint=nearest(name, known[option]),
            )
            for option, name, noun in found
            if name not in known[option]
        ]

    def _left_out(self) -> str:
        files = len({problem.file for problem in self.refused})
        lines = "\n".join(f"  {problem}" for problem in self.refused[:_SHOWN])
        if (more := len(self.refused) - _SHOWN) > 0:
            lines += f"\n  and {counted(more, 'problem')} more; `invalid: error` shows them"
        return f"{counted(files, 'task folder')} left out:\n{lines}"

    def _readable(self) -> Iterator[Task]:
        seen: dict[str, str] = {}
        path = str(self._options.path.absolute())
        found = False
        for folder, file in task_folders(Folder(path), self._unlisted):
            found = True
            named = self._is_named(task_id(folder.name))
            try:
                self._environ.taken.clear()
                read = _READERS[file](folder, self._environ, self._key)
                task = self._with_processes(self._with_limits(read))
                taken = self._taken_by(task, folder.at(file))
            except InputError as error:
                self.refused += error.problems if named else ()
                continue
            except OSError as error:
                refused = Problem(message=f"can't be read: {error}", file=folder.at(file))
                self.refused += [refused] if named else ()
                continue
            first = seen.setdefault(task.id, task.origin)
            if first != task.origin:
                message = f"'{task.id}' is already the id of the task in {first}"
                refused = Problem(message=message, file=task.origin)
                self.refused += [refused] if named else ()
            else:
                self._taken[task.id] = taken
                yield task
        if not found and self.refused:
            raise InputError(self.refused)
        if not found and not self._options.path.exists():
            hint = nearest_file(self._options.path.absolute())
            raise InputError.of("no such folder", file=path, hint=hint)
        if not found:
            hint = f"a task is a folder with {harbor.FILE} (Harbor) or {terminal_bench.FILE}"
            raise InputError.of("no tasks in here", file=path, hint=hint)

    def _unlisted(self, folder: Folder, error: OSError) -> None:
        if self._is_named(task_id(folder.name)):
            message = f"can't be listed: {error.strerror}"
            self.refused.append(Problem(message=message, file=folder.path))

    def _taken_by(self, task: Task, file: str) -> list[str]:
        """Names of what was taken while the task was read, and of what its tests will take.

        Raises:
            InputError: the options don't allow one of them.
        """
        for spec in (spec for part in (task, *task.steps) for spec in part.criteria):
            resolved(spec.options["env"], self._environ, lambda _, __: None)
        taken, allowed = sorted(self._environ.taken), self._options.host_env
        refused = [name for name in taken if allowed is not None and name not in allowed]
        if refused:
            message = f"{task.id} would read variables of this machine: {', '.join(refused)}"
            hint = f"--set 'tasks.host_env=[{', '.join(taken)}]' allows it"
            raise InputError.of(message, file=file, hint=hint)
        return taken

    def _with_limits(self, task: Task) -> Task:
        options = self._options
        own = task.environment
        environment = own and replace(
            own,
            cpus=options.cpus or own.cpus,
            memory_mb=options.memory_mb or own.memory_mb,
        )
        if options.time_factor == 1:
            return replace(task, environment=environment)
        steps = tuple(_slower(step, options.time_factor) for step in task.steps)
        slower = _slower(task, options.time_factor)
        return replace(slower, steps=steps, environment=environment)

    def _with_processes(self, task: Task) -> Task:
        """Leave the agent's processes to the criterion, whose tests may need to reach them."""
        chosen = _matches(task.id, self._options.keep_processes)
        steps = tuple(_kept(step, chosen) for step in task.steps)
        return replace(_kept(task, chosen), steps=steps)

    def _is_named(self, id: str) -> bool:
        """Do `include` and `exclude` leave a task with this id?"""
        options = self._options
        included = not options.include or _matches(id, options.include)
        return included and not _matches(id, options.exclude)

    def _is_chosen(self, task: Task) -> bool:
        options = self._options
        return (
            self._is_named(task.id)
            and (not options.tags or any(tag in options.tags for tag in task.tags))
            and (not options.difficulty or task.metadata["difficulty"] in options.difficulty)
        )


def task_folders(
    folder: Folder, unlisted: Callable[[Folder, OSError], object]
) -> Iterator[tuple[Folder, str]]:
    """The task folders at a path, by name, each with the file that makes it one.

    Folders in a task folder and hidden folders are not searched. As in Harbor, a link is followed
    only to a task folder, so none can lead in a circle.

    Args:
        unlisted: is given each folder that can't be listed, and why.
    """
    try:
        names = folder.names
    except OSError as error:
        unlisted(folder, error)
        return
    for file in _READERS:
        if folder.has(file):
            yield folder, file
            return
    for name in names:
        if name.startswith(".") or not folder.has_folder(name):
            continue
        # A new object, so that the listings of thousands of folders are not kept in memory.
        below = Folder(folder.at(name))
        if not folder.links(name) or any(below.has_file(file) for file in _READERS):
            yield from task_folders(below, unlisted)


def _slower(task: Task, factor: float) -> Task:
    limit = task.constraints.time_limit_s
    return replace(
        task,
        constraints=replace(
            task.constraints, time_limit_s=None if limit is None else limit * factor
        ),
        criteria=tuple(
            replace(each, options={**each.options, "timeout_s": each.options["timeout_s"] * factor})
            for each in task.criteria
        ),
    )


def _kept(task: Task, chosen: bool) -> Task:
    why = {KEPT_PROCESSES: "the config says so"} if chosen else {}
    return replace(task, keep_processes=True, metadata={**task.metadata, **why})


def _matches(task_id: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(task_id, glob) for glob in globs)


def _unmatched(globs: Sequence[str], tasks: Sequence[Task]) -> list[Problem]:
    ids = [task.id for task in tasks]
    return [
        Problem(
            message=f"no task has an id that matches '{glob}'",
            path="include",
            hint=nearest(glob, ids),
        )
        for glob in globs
        if not any(fnmatchcase(task_id, glob) for task_id in ids)
    ]
