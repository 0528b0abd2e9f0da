"""The digest that identifies a task in Harbor."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ale.types import Task

_FILES = ("task.toml", "instruction.md", "README.md", "trajectory.json")
_FOLDERS = ("environment", "tests", "solution", "steps")
_IGNORED = (".pyc", ".swp", ".swo", "~")


def digest_of(task: Task, folder: Path) -> str:
    """SHA-256 of a task folder's content, as Harbor's publisher takes it.

    If the folder no longer exists in that format, the digest of the task as stored in the run.

    Patterns in a task's ``.gitignore`` are ignored.
    """
    if (folder / "task.toml").is_file():
        return folder_digest(folder)
    return hashlib.sha256(msgspec.json.encode(task)).hexdigest()


def folder_digest(folder: Path) -> str:
    """Digest of the names and contents of a task's files, sorted by name."""
    outer = hashlib.sha256()
    names = {path.relative_to(folder).as_posix(): path for path in _files(folder)}
    for name in sorted(names):
        with names[name].open("rb") as file:
            inner = hashlib.file_digest(file, "sha256").hexdigest()
        outer.update(f"{name}\0{inner}\n".encode())
    return outer.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for name in _FILES:
        if (folder / name).is_file():
            yield folder / name
    for name in _FOLDERS:
        for path in (folder / name).rglob("*"):
            if path.is_file() and not _is_ignored(path.relative_to(folder)):
                yield path


def _is_ignored(path: Path) -> bool:
    return path.name.endswith(_IGNORED) or path.name == ".DS_Store" or "__pycache__" in path.parts
