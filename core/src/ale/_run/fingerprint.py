"""A digest of a task with the files that it names, to tell whether it is still the same."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from ale.types import Task

_PLACES = ("origin", "file", "line")
"""Fields that say where a task is from, not what it is."""
_KEY = re.compile(r"[0-9a-f]{48}")
"""A key that a task source makes anew at each load, as no agent may know it beforehand: the option
``record_key`` of a criterion, which is in the setup steps too. It is longer than the digest of a
file, so that none can hide another file."""


def fingerprint(task: Task) -> str:
    """A digest of a task and of the files of this machine that it names, wherever they are."""
    base = Path(task.criteria[0].file).parent if task.criteria and task.criteria[0].file else None
    text = json.dumps(_facts(task, base), sort_keys=True, default=str)
    return hashlib.blake2b(without_keys(task, text).encode(), digest_size=16).hexdigest()


def without_keys(task: Task, text: str) -> str:
    """A text about a task without the keys that are made anew at each load."""
    for key in _keys(task):
        text = text.replace(key, "")
    return text


def _keys(task: Task) -> set[str]:
    given = (spec.options.get("record_key") for one in (task, *task.steps) for spec in one.criteria)
    return {key for key in given if isinstance(key, str) and _KEY.fullmatch(key)}


def _facts(value: Any, base: Path | None) -> Any:
    if attrs.has(type(value)):
        names = [each.name for each in attrs.fields(type(value)) if each.name not in _PLACES]
        return {name: _facts(getattr(value, name), base) for name in names}
    if isinstance(value, Mapping):
        return {str(key): _facts(each, base) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_facts(each, base) for each in value]
    path = path_in(value, base) if isinstance(value, str) else None
    return value if path is None else _content(path)


def _content(path: Path) -> Mapping[str, str]:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {
        str(each.relative_to(path)): hashlib.blake2b(each.read_bytes(), digest_size=16).hexdigest()
        for each in sorted(files)
        if "__pycache__" not in each.parts
    }


def path_in(text: str, base: Path | None) -> Path | None:
    """The file or folder of this machine that an option names, or None if it names none.

    Args:
        text: the option's value.
        base: the folder that a relative path is below.
    """
    path = Path(text) if base is None else base / text
    try:
        return path if path.is_absolute() and path != base and path.exists() else None
    except (OSError, ValueError):  # too long, or with a byte 0
        return None
