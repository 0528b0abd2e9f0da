"""Remove run directories, never one that is being written."""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ale.errors import InputError, StoreError
from ale.runs import RunReader, lock
from ale.types import KEPT


@contextmanager
def held(run: Path) -> Iterator[RunReader]:
    """A run that no process writes to during the block.

    Raises:
        InputError: it is no run directory, or a link to one.
        StoreError: a process writes to it.
    """
    if run.is_symlink():
        raise InputError.of("a link to a run directory", file=str(run), hint=f"use {run.resolve()}")
    reader = RunReader(run)
    descriptor = lock(run)
    try:
        yield reader
    finally:
        os.close(descriptor)


def check(runs: Iterable[Path]) -> None:
    """Raise as `held` if one of these runs can't be held, before anything is done."""
    for run in runs:
        with held(run):
            pass


def remove(run: Path) -> None:
    """Remove a run directory that the caller holds.

    It is renamed first, so that a part of it is never taken for a run.

    Raises:
        StoreError: it can't be removed.
    """
    run = run.absolute()
    doomed = run.with_name(f".{run.name}.deleted")
    try:
        if doomed.exists():  # of a process that was killed while it removed one
            shutil.rmtree(doomed)
        run.rename(doomed)
        shutil.rmtree(doomed)
    except OSError as error:
        raise StoreError(f"{run} can't be removed: {error.strerror}") from error


def kept_states(run: Path) -> int:
    """States of sandboxes that stay because a file of the run names them: see `ale.types.KEPT`."""
    return sum(1 for _ in (run / KEPT).glob("*"))


def size_of(run: Path) -> int:
    """Bytes of all files of a run."""
    sizes = 0
    for folder, _, names in os.walk(run):
        sizes += sum((Path(folder) / name).lstat().st_size for name in names)
    return sizes
