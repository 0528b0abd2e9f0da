"""Processes that run for long say what they are, so that `ale status` shows them.

Each has a file in a folder of the user, locked for as long as it runs: the kernel releases the lock
when the process ends, even by a signal, so nobody else is listed. The folder is that of the
environment variable ``ALE_PROCESSES``, or ``~/.cache/ale/processes``.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["FOLDER_VARIABLE", "Process", "announced", "processes"]

FOLDER_VARIABLE = "ALE_PROCESSES"
_log = logging.getLogger(__name__)


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process that runs for long."""

    kind: str
    """In one word: ``worker``, ``proxy``, ``bridge``, ``loop``."""
    pid: int
    started: float
    """Seconds since the epoch."""
    directory: str = ""
    """Its run directory, where it has one."""
    url: str = ""
    """Where it listens, where it does."""
    facts: Mapping[str, Any] = {}
    """More to show, as plain values without secrets."""


@contextmanager
def announced(
    kind: str, *, directory: Path | None = None, url: str = "", **facts: Any
) -> Iterator[None]:
    """Be listed while the block runs. Where that is not possible, a warning says why.

    Args:
        kind: in one word, as a command is called.
        directory: its run directory.
        url: where it listens, without a key.
        facts: more to show, as plain values without secrets.
    """
    process = Process(
        kind=kind,
        pid=os.getpid(),
        started=time.time(),
        directory="" if directory is None else str(directory.resolve()),
        url=url,
        facts=facts,
    )
    try:
        file, descriptor = _written(_folder(), process)
    except (OSError, ModuleNotFoundError) as error:
        _log.warning("ale status does not show this %s: %s", kind, error)
        yield
        return
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        os.close(descriptor)


def processes() -> list[Process]:
    """The processes that run now, the oldest first. Files of others are removed."""
    found = [_read(file) for file in _folder().glob("*.json")]
    return sorted((each for each in found if each is not None), key=lambda each: each.started)


def _folder() -> Path:
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "ale" / "processes"


def _written(folder: Path, process: Process) -> tuple[Path, int]:
    """The file, and the descriptor that holds its lock."""
    import fcntl  # here: there is none on Windows

    folder.mkdir(parents=True, exist_ok=True)
    name = f"{process.kind}-{process.pid}-{os.urandom(4).hex()}"
    partial = folder / f".{name}.partial"
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, msgspec.json.encode(process))
        # Locked before it has its name: who sees it unlocked removes it.
        return partial.rename(folder / f"{name}.json"), descriptor
    except OSError:
        os.close(descriptor)
        partial.unlink(missing_ok=True)
        raise


def _read(path: Path) -> Process | None:
    import fcntl

    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return msgspec.json.decode(file.read(), type=Process)
        path.unlink(missing_ok=True)
    return None
