"""Reads values of a task file by type, and notes every problem with its key."""

import hashlib
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from attrs import evolve

from ale.errors import InputError, Problem
from ale.strict import describe, nearest
from ale.types import Task, replace
from ale_tasks_harbor.folder import Folder

MISSPELT = "misspelt_keys"
"""In a task's metadata: keys without an effect that are similar to a known one."""
_YES = ("1", "on", "t", "true", "y", "yes")
_NO = ("0", "off", "f", "false", "n", "no")
_PART = re.compile(r"([^.\[\]]+)(?:\[(\d+)\])?")
"""A name of a path, with its index: ``steps[1]``."""
_HEADER = re.compile(r"\s*\[+[^\[\],=]+\]+\s*(#.*)?$")
"""The header of a table of TOML."""


class Values:
    """One table of a task file.

    A value of the wrong type is noted and its default is used, so that all problems of a file are
    found at once.

    Args:
        problems: shared by all tables of a file.
        misspelt: likewise; unknown keys that are similar to known ones.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        *,
        file: str,
        problems: list[Problem],
        misspelt: list[Problem] | None = None,
        path: str = "",
    ) -> None:
        self.values = values
        self.file = file
        self.problems = problems
        self.misspelt = [] if misspelt is None else misspelt
        self.path = path
        self._tables: dict[str, Values] = {}

    def refuse(self, key: str, message: str, *, hint: str | None = None) -> None:
        """Note a problem that makes the file unusable."""
        self.note(self.file, message, self._path(key), hint=hint)

    def note(
        self, file: str, message: str, path: str | None = None, *, hint: str | None = None
    ) -> None:
        """Note a problem of any file of the task."""
        self.problems.append(Problem(message=message, file=file, path=path, hint=hint))

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _wrong(self, key: str, expected: str) -> None:
        self.refuse(key, f"expected {expected}, found {describe(self.values[key])}")

    def has(self, key: str) -> bool:
        """Whether the key has a value other than null."""
        return self.values.get(key) is not None

    def table(self, key: str) -> "Values":
        """The table under a key; an empty one if the key is missing."""
        if key not in self._tables:
            found = self.values.get(key)
            if found is not None and not isinstance(found, Mapping):
                self._wrong(key, "a table")
                found = None
            self._tables[key] = self._below(found or {}, self._path(key))
        return self._tables[key]

    def _below(self, values: Mapping[str, Any], path: str) -> "Values":
        return Values(
            values, file=self.file, problems=self.problems, misspelt=self.misspelt, path=path
        )

    def tables(self, key: str) -> Sequence["Values"]:
        """A list of tables."""
        found = self.values.get(key)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
            self._wrong(key, "a list of tables")
            return []
        return [self._below(item, f"{self._path(key)}[{i}]") for i, item in enumerate(found)]

    def text(self, key: str) -> str | None:
        """The text under a key; None if it is missing or blank, as ``harbor init`` writes it."""
        found = self.values.get(key)
        if found is None:
            return None
        if not isinstance(found, str):
            self._wrong(key, "text")
            return None
        return found if found.strip() else None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        found = self.values.get(key)
        if found is None:
            return ()
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            self._wrong(key, "a list of texts")
            return ()
        return tuple(found)

    def user(self) -> str | None:
        """The user under ``user``, by name or number."""
        found = self.values.get("user")
        if isinstance(found, bool) or not isinstance(found, str | int | None):
            self._wrong("user", "the name or the number of a user")
            return None
        return None if found is None else str(found)

    def pairs(self, key: str) -> dict[str, str]:
        """A table of texts: environment variables."""
        table = self.table(key)
        for name, value in table.values.items():
            if not isinstance(value, str):
                table.refuse(str(name), f"expected text, found {describe(value)}")
        return {str(k): v for k, v in table.values.items() if isinstance(v, str)}

    def seconds(self, key: str, default: float | None) -> float | None:
        """A time above 0."""
        found = self._number(key, "a number above 0", lambda number: 0 < number < math.inf)
        return default if found is None else found

    def amount(self, key: str, default: float) -> float:
        """A number that may be a fraction, at least 0."""
        found = self._number(key, "a number, at least 0", lambda number: 0 <= number < math.inf)
        return default if found is None else found

    def whole(self, key: str) -> int | None:
        """A whole number, at least 0."""
        expected = "a whole number, at least 0"
        found = self._number(key, expected, lambda number: number >= 0 and number.is_integer())
        return None if found is None else int(found)

    def _number(self, key: str, expected: str, allowed: Callable[[float], bool]) -> float | None:
        found = number_of(self.values.get(key))
        if found is None:
            if self.has(key):
                self._wrong(key, expected)
        elif not allowed(found):
            self.refuse(key, f"expected {expected}, found {found:g}")
            return None
        return found

    def flag(self, key: str) -> bool | None:
        """True or false, or one of the words that Harbor accepts for them."""
        found = self.values.get(key)
        if found is None or isinstance(found, bool):
            return found
        text = str(found).lower()
        if text in _YES or text in _NO:
            return text in _YES
        self._wrong(key, "true or false")
        return None

    def choice(self, key: str, allowed: Collection[str], default: str) -> str:
        """One of the allowed words."""
        found = self.values.get(key)
        if found is None:
            return default
        if found not in allowed:
            text = f"expected one of {', '.join(allowed)}, found {describe(found)}"
            self.refuse(key, text, hint=nearest(str(found), allowed))
            return default
        return str(found)

    def unknown(self, known: Collection[str]) -> list[str]:
        """Paths of the keys that are not known; those similar to a known one are noted."""
        found = [str(key) for key in self.values if key not in known]
        for key in found:
            if hint := nearest(key, known):
                message = "there is no such key, so it is ignored"
                path = self._path(key)
                self.misspelt.append(Problem(message=message, file=self.file, path=path, hint=hint))
        return [self._path(key) for key in found]


def number_of(value: object) -> float | None:
    """A number, or text of one, as Harbor accepts both; None if it is neither."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def plain_name(name: str) -> str:
    """A name as a part of an id: characters that some file systems refuse become dashes."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".-") or "task"


def task_id(folder: str) -> str:
    """A folder's name as an id.

    Names in another script, which would all become the same dashes, get a digest.
    """
    made = plain_name(folder)
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
    return made if folder.isascii() else f"{made.rstrip('-')}-{digest}"


def read_task(
    folder: Folder, name: str, parse: Callable[[str], Any], make: Callable[[Values], Task]
) -> Task:
    """Read the file that makes a folder a task.

    Args:
        parse: its text; raises ValueError where it is none of its format.
        make: the task of its content, whose problems it notes.

    Raises:
        InputError: with every reason why the task can't be run.
        OSError: a folder in it can't be listed.
    """
    file = folder.at(name)
    try:
        text = folder.text(name)
    except OSError as error:
        raise InputError.of(f"can't be read: {error}", file=file) from None
    try:
        root = Values(parse(text), file=file, problems=[])
    except ValueError as error:
        raise InputError.of(str(error), file=file) from None
    task = make(root)
    if root.problems:
        raise InputError([_located(p, text, file) for p in dict.fromkeys(root.problems)])
    if not root.misspelt:
        return task
    misspelt = [str(_located(p, text, file)) for p in root.misspelt]
    return replace(task, metadata={**task.metadata, MISSPELT: misspelt})


def _located(problem: Problem, text: str, file: str) -> Problem:
    """The problem with the line of its key, if it is in this file."""
    if problem.file != file or problem.path is None:
        return problem
    return evolve(problem, line=_line_of(text, problem.path))


def _line_of(text: str, path: str) -> int | None:
    """The 1-based line of a key in a TOML or YAML text, or of the table without the key.

    Returns:
        None if neither is found.
    """
    lines = text.splitlines()
    low, high, table, names = 0, len(lines), -1, []
    *tables, (key, _) = _PART.findall(path) or [(path, "")]
    for name, index in tables:
        names.append(re.escape(name))
        header = re.compile(rf"\s*\[+\s*{r'[.]'.join(names)}\s*\]+|{names[-1]}\s*:")
        found = [i for i in range(low, high) if header.match(lines[i])]
        n = int(index or 0)
        if n >= len(found):
            below = re.compile(rf"\s*\[+\s*{r'[.]'.join(names)}\s*[.]")
            if any(map(below.match, lines)):  # TOML needs no header of its own for it
                continue
            key = name  # written inside the line of its name
            break
        table = found[n]
        if index:  # the next tables of the list have the same keys
            low, high = table + 1, found[n + 1] if n + 1 < len(found) else high
    end = next((i for i in range(table + 1, high) if _HEADER.match(lines[i])), high)
    wanted = re.compile(rf"\s*(?:-\s+)?[\"']?{re.escape(key)}[\"']?\s*[=:.]")
    of_key = (i for i in range(table + 1, end) if wanted.match(lines[i]))
    itself = re.compile(rf"\s*\[+\s*{r'[.]'.join([*names, re.escape(key)])}\s*\]+")
    of_table = (i for i in range(low, high) if itself.match(lines[i]))
    return next(of_key, next(of_table, table)) + 1 or None
