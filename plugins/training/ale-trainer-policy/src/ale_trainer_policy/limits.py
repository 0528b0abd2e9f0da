"""The memory that a process may use on this machine, and what to change where it is too little."""

import os
from collections.abc import Iterator
from pathlib import Path

LESS_MEMORY = (
    "`ale plan CONFIG` says what takes the memory, and which options take less, such as "
    "trainer.activations=recompute or a smaller trainer.max_tokens_per_microbatch. A server on the "
    "same GPU takes memory too: vLLM nearly all, unless its gpu_memory is less."
)
_V2, _V1 = "memory.max", "memory.limit_in_bytes"


def host_memory(root: Path = Path("/")) -> tuple[float, str]:
    """Bytes, and what limits them: ``this machine`` or a file of a cgroup.

    A container sees its own cgroup at the root of the file system of cgroups, and the whole
    machine's memory elsewhere. Every cgroup above a process limits it too.

    Args:
        root: the folder that contains ``proc`` and ``sys``.
    """
    physical = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limits = [(limit, str(file)) for file in _files(root) if (limit := _limit(file)) is not None]
    return min([(physical, "this machine"), *limits])


def _files(root: Path) -> Iterator[Path]:
    """The files that may limit this process, of cgroup versions 2 and 1."""
    base = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            yield from (folder / _V2 for folder in _upwards(base, path))
            yield from (folder / _V2 for folder in _upwards(base / "unified", path))
        elif "memory" in controllers.split(","):
            yield from (folder / _V1 for folder in _upwards(base / "memory", path))


def _upwards(base: Path, path: str) -> Iterator[Path]:
    own = base / path.lstrip("/")
    yield own
    for parent in own.parents:
        if not parent.is_relative_to(base):
            return
        yield parent


def _limit(file: Path) -> float | None:
    """The limit in bytes; None if the file does not exist or sets no limit."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return float(text) if text.isdecimal() else None
