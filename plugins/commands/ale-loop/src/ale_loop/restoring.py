"""``ale loop restore``: ask the loop that runs, or do it where none does."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ale.errors import AleError
from ale.runs import holder
from ale_loop.options import read_config
from ale_loop.record import answered, ask
from ale_loop.running import restore as restore_alone

_LOOK_S = 0.1


def restore(
    path: Path, version: int, registry: Any, report: Callable[[str], None], wait_s: float
) -> None:
    """Deploy a version.

    Raises:
        AleError: it can't be deployed, or the loop has not answered in time; it will yet.
    """
    directory = read_config(path, started=True).options.directory
    if holder(directory) is None:
        error = restore_alone(path, version, registry, report)
    else:
        error = _asked(directory, version, wait_s)
    if error:
        raise AleError(error)
    report(f"version {version} is deployed")


def _asked(directory: Path, version: int, wait_s: float) -> str:
    request = ask(directory, version)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        found = answered(directory)
        if found is not None and found.id == request.id:
            return found.error
        time.sleep(_LOOK_S)
    return (
        f"the loop has not answered within {wait_s:g} s; it deploys version {version} when it has "
        "ended what it does, or when it is started again"
    )
