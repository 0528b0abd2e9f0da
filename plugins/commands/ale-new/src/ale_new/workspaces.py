"""Folders of files that `ale new` writes as they are: for programs that are no plugins of `ale`."""

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

WORKSPACES = ("openclaw",)
"""Their names, as the KIND of ``ale new``: a manager and a worker of OpenClaw."""


def write_workspace(directory: Path, kind: str, name: str) -> tuple[Path, ...]:
    """Write the files into a new folder of this name.

    Returns:
        The files, in the order written.

    Raises:
        FileExistsError: the folder exists already; nothing is changed.
        OSError: it can't be written.
    """
    root = directory / name
    root.mkdir()
    written = []
    for path, source in _files(files("ale_new") / "templates" / kind, Path()):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
        written.append(target)
    return tuple(written)


def _files(folder: Traversable, path: Path) -> Iterator[tuple[Path, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _files(entry, path / entry.name)
        else:
            yield path / entry.name, entry
