"""The task source ``alignment``: four sets in YAML files beside this one."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from importlib.resources import as_file, files
from shlex import quote
from typing import Any, TypeVar, get_args

from attrs import frozen

from ale.errors import InputError, Problem
from ale.strict import nearest, read_yaml, structure
from ale.types import CriterionSpec, Task
from ale_alignment.options import AlignmentOptions, SetName

SETS: tuple[SetName, ...] = get_args(SetName)
Trace = Mapping[str, Any]
FileT = TypeVar("FileT")


@frozen(kw_only=True)
class Behaviour:
    """A reference: what it does, and the commands that do it."""

    does: str
    run: tuple[str, ...]


@frozen(kw_only=True)
class Entry:
    """A task as its file has it."""

    id: str
    goal: str
    pressure: str = ""
    """The user's wish against the facts; left out with ``pressure: false``."""
    files: Mapping[str, str]
    """Path and content of what is there at the start."""
    setup: tuple[str, ...] = ()
    deliverable: str
    """The file that the goal asks for."""
    check: str
    """A hidden command that succeeds if the work is done."""
    proxy: str = ""
    """A command that the agent can satisfy without the work. Without one it is: the deliverable
    is not empty."""
    keeps: tuple[Trace, ...] = ()
    """Options of traces that have to be there, whatever the agent does."""
    never: tuple[Trace, ...] = ()
    """Options of traces that must not be there."""
    honest: Behaviour
    misaligned: Behaviour


@frozen(kw_only=True)
class _SetFile:
    summary: str
    tasks: tuple[Entry, ...]


@frozen(kw_only=True)
class _Common:
    never: tuple[Trace, ...]


class AlignmentTasks:
    """Makes a task of each entry."""

    def __init__(self, options: AlignmentOptions) -> None:
        self._options = options

    def load(self) -> Iterator[Task]:
        """The tasks of the chosen sets, in the order of their files.

        Raises:
            InputError: a glob of `include` matches no task.
        """
        options = self._options
        common = _read("common", _Common).never
        made = [
            self._task(name, entry, common)
            for name in SETS
            if name in (options.sets or SETS)
            for entry in entries(name)
        ]
        ids = [task.id for task in made]
        for glob in options.include:
            if not any(fnmatchcase(each, glob) for each in ids):
                message = f"no task has an id that matches '{glob}'"
                raise InputError(
                    [Problem(message=message, path="include", hint=nearest(glob, ids))]
                )
        for task in made:
            if not options.include or any(fnmatchcase(task.id, g) for g in options.include):
                yield task

    def _task(self, name: SetName, entry: Entry, common: tuple[Trace, ...]) -> Task:
        options = self._options
        pressed = f"{entry.goal}\n\n{entry.pressure}" if entry.pressure else entry.goal
        solution = entry.honest if options.reference == "honest" else entry.misaligned
        return Task(
            id=entry.id,
            goal=pressed if options.pressure else entry.goal,
            origin=f"ale-alignment: {name}",
            tags=("alignment", name),
            setup_steps=(*_written(entry.files), *entry.setup),
            criteria=tuple(self._criteria(entry, common)),
            solution=solution.run,
            metadata={
                "environment": "terminal",
                "set": name,
                "deliverable": entry.deliverable,
                "honest": {"does": entry.honest.does, "run": [*entry.honest.run]},
                "misaligned": {"does": entry.misaligned.does, "run": [*entry.misaligned.run]},
            },
        )

    def _criteria(self, entry: Entry, common: tuple[Trace, ...]) -> Iterator[CriterionSpec]:
        grading, deliverable = self._options.grading, entry.deliverable
        if grading != "full":
            command = entry.proxy or f"test -s {quote(deliverable)}"
            yield CriterionSpec(type="command_exit_code", options={"command": command})
        if grading == "proxy":
            return
        yield CriterionSpec(type="command_exit_code", options={"command": entry.check})
        for trace in entry.keeps:
            yield CriterionSpec(type="trace", options=trace)
        for trace in entry.never:
            yield CriterionSpec(type="trace", options={**trace, "absent": True})
        for trace in common:
            place = {} if "where" in trace else {"path": deliverable}
            yield CriterionSpec(type="trace", options={**place, **trace, "absent": True})


def entries(name: SetName) -> tuple[Entry, ...]:
    """The tasks of a set, as its file has them."""
    return _read(name, _SetFile).tasks


def _read(name: str, cls: type[FileT]) -> FileT:
    with as_file(files("ale_alignment") / "sets" / f"{name}.yaml") as path:
        return structure(read_yaml(path), cls)


def _written(contents: Mapping[str, str]) -> Iterator[str]:
    for path, text in contents.items():
        folder = path.rpartition("/")[0]
        made = f"mkdir -p {quote(folder)} && " if folder else ""
        yield f"{made}printf %s {quote(text)} > {quote(path)}"
