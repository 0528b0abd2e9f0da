"""Find task files below a folder."""

import os
from collections.abc import Iterator
from pathlib import Path

from ale.errors import Problem
from ale.strict import nearest
from ale_tasks_tbp.reader import FOLDER_FILES

_SUFFIXES = (".yaml", ".yml")


def task_files(path: Path, problems: list[Problem]) -> Iterator[Path]:
    """The task files at `path`, in the order of their names, folder by folder.

    A folder with a task.yaml is one task and is not searched further. Hidden files and folders
    are passed over, and so are runs, what `ale eval` has written beside them, and a folder that was
    searched before under another name (a link to a folder above it, say).

    Args:
        path: a task file, a task folder, or a folder of such.
        problems: gets one for every folder that can't be listed, and for a pipe or a device.
    """
    if path.is_dir():
        for file in _search(path, set(), problems):
            if file.exists() and not file.is_file():  # reading a pipe could wait for ever
                message = "is a pipe or a device, not a file"
                problems.append(Problem(message=message, file=str(file)))
            else:
                yield file
    elif path.exists():
        yield path
    else:
        folder = path.parent
        beside = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        hint = nearest(path.name, beside)
        problems.append(Problem(message="no such file or folder", file=str(path), hint=hint))


def _search(folder: Path, seen: set[tuple[int, int]], problems: list[Problem]) -> Iterator[Path]:
    try:
        status = folder.stat()
        if (status.st_dev, status.st_ino) in seen:
            return
        seen.add((status.st_dev, status.st_ino))
        entries = _visible(folder)
    except OSError as error:
        message = f"can't be listed: {error.strerror}"
        problems.append(Problem(message=message, file=str(folder)))
        return
    own = [name for name, _ in entries if name in FOLDER_FILES]
    if own:
        yield from (folder / name for name in own)
        return
    if _is_of_runs(folder):
        return
    for name, is_folder in entries:
        if is_folder:
            yield from _search(folder / name, seen, problems)
        elif name.endswith(_SUFFIXES):
            yield folder / name


def _is_of_runs(folder: Path) -> bool:
    """Whether this is a run, or what `ale eval` has made for one: a lock, and a config."""
    written = (folder / ".lock").is_file() and (folder / "config.yaml").is_file()
    return written or (folder / "manifest.json").is_file()


def _visible(folder: Path) -> list[tuple[str, bool]]:
    """Name and "is a folder" of every entry that is not hidden, by name."""
    with os.scandir(folder) as listing:
        return sorted(
            (entry.name, _is_folder(entry)) for entry in listing if not entry.name.startswith(".")
        )


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # DirEntry.is_dir raises for a link that leads to itself; a path's answer is plainly no.
    return entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and Path(entry).is_dir())
