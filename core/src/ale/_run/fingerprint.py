"""A digest of a task with the files that it names, to tell whether it is still the same."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from ale.types import Task, replace

_ABOUT = ("origin", "file", "line", "reference_used", "reference_contested")
"""Fields that say where a task is from, or what was seen of it, not what it is."""
_HOST = ("files", "build")
"""Fields that are a folder of this machine, or a file."""
_NAMING = ("options", "metadata")
"""Fields that may name files of the task, at any depth."""
_KEY = re.compile(r"[0-9a-f]{48}")
"""A key that a task source makes anew at each load, as no agent may know it beforehand: the option
``record_key`` of a criterion, which is in the setup steps too. It is longer than the digest of a
file, so that none can hide another file."""


def fingerprint(task: Task) -> str:
    """A digest of a task and of its files: its two folders, and what its options name of its own.

    Whatever else looks like a path is text, such as a variable's: it is meant for the sandbox.
    """
    text = json.dumps(_facts(task, _base(task)), sort_keys=True, default=str)
    return hashlib.blake2b(without_keys(task, text).encode(), digest_size=16).hexdigest()


def trained_too(train: Iterable[Task], evaluation: Sequence[Task]) -> list[Task]:
    """The tasks of an evaluation that are trained on too, whatever their names there."""
    # Digests of all tasks take long, and most are told apart by what is asked.
    asked = {(task.goal, task.setup_steps) for task in evaluation}
    alike = [task for task in train if (task.goal, task.setup_steps) in asked]
    trained = {_without_names(task) for task in alike}
    return [task for task in evaluation if trained and _without_names(task) in trained]


def _without_names(task: Task) -> str:
    return fingerprint(replace(task, id="", description="", tags=(), metadata={}))


def _base(task: Task) -> Path | None:
    specs = (spec for one in (task, *task.steps) for spec in one.criteria)
    return next((Path(spec.file).parent for spec in specs if spec.file), None)


def without_keys(task: Task, text: str) -> str:
    """A text about a task without the keys that are made anew at each load."""
    for key in _keys(task):
        text = text.replace(key, "")
    return text


def _keys(task: Task) -> set[str]:
    given = (spec.options.get("record_key") for one in (task, *task.steps) for spec in one.criteria)
    return {key for key in given if isinstance(key, str) and _KEY.fullmatch(key)}


def _facts(value: Any, base: Path | None, named: bool = False) -> Any:
    """Plain values, with the content of files in the place of paths.

    Args:
        base: the folder of the task.
        named: whether texts in it may name files of the task.
    """
    if attrs.has(type(value)):
        return {
            each.name: _host_folder(getattr(value, each.name))
            if each.name in _HOST
            else _facts(getattr(value, each.name), base, named=each.name in _NAMING)
            for each in attrs.fields(type(value))
            if each.name not in _ABOUT
        }
    if isinstance(value, Mapping):
        return {str(key): _facts(each, base, named) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_facts(each, base, named) for each in value]
    path = path_in(value, base) if named and isinstance(value, str) else None
    return value if path is None else _content(path)


def _host_folder(value: str | None) -> Any:
    return value if value is None or not Path(value).exists() else _content(Path(value))


def _content(path: Path) -> Mapping[str, str]:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {
        str(each.relative_to(path)): _digest(each, path)
        for each in sorted(files)
        if "__pycache__" not in each.parts
    }


def _digest(file: Path, folder: Path) -> str:
    """That of its content; of a link that leaves the folder, as into /proc, where it leads."""
    if file.is_symlink() and not file.resolve().is_relative_to(folder.resolve().parent):
        return f"link to {file.readlink()}"
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, partial(hashlib.blake2b, digest_size=16)).hexdigest()


def path_in(text: str, base: Path | None) -> Path | None:
    """The file or folder of a task that one of its options names, or None if it names none.

    An absolute path is the task's if it is inside its folder; elsewhere it is one of the sandbox.
    A relative one may be beside the folder, as with tests that several tasks share.

    Args:
        text: the option's value.
        base: the folder of the task, which a relative path is below; None: it has none.
    """
    if base is None:
        return None
    try:
        root = base.resolve()
        path = (root / text).resolve()
        own = root if Path(text).is_absolute() else root.parent
        inside = path.is_relative_to(own) and path not in (root, root.parent)
        return path if inside and (path.is_file() or path.is_dir()) else None
    except (OSError, ValueError, RuntimeError):  # too long, with a byte 0, or an endless link
        return None
