"""Limits on a whole sandbox by control groups, version 1 or 2, where this user may make them."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from ale.errors import SandboxError

PERIOD_US = 100_000
_TIMEOUT_S = 5.0


@frozen(kw_only=True)
class Wanted:
    """Limits of one sandbox; None: no limit, or enforced in another way."""

    memory_bytes: int | None
    processes: int | None
    cpus: float | None


@frozen(kw_only=True)
class Mounted:
    """A hierarchy, and where this process is in it."""

    folder: Path
    own: str
    version: int
    controllers: frozenset[str]


class Cgroups:
    """Where groups can be made: a folder for each of memory, pids and cpu, as far as one may."""

    def __init__(self, places: Mapping[str, Path], version: int) -> None:
        self.places = places
        self.version = version

    @classmethod
    def find(cls) -> "Cgroups":
        """Try: make and remove a group in each place."""
        mounted = list(_hierarchies())
        for hierarchy in mounted:
            if hierarchy.version == 2:
                for folder in _ancestors_of(hierarchy):
                    available = _available_controllers(
                        folder, {"memory": "memory.max", "pids": "pids.max"}
                    )
                    if "memory" in available:
                        extra = _available_controllers(folder, {"cpu": "cpu.max"})
                        return cls(dict.fromkeys([*available, *extra], folder), 2)
        files = {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.cfs_quota_us"}
        places: dict[str, Path] = {}
        for hierarchy in mounted:
            folder = hierarchy.folder / hierarchy.own.lstrip("/")
            wanted = {name: files[name] for name in hierarchy.controllers & files.keys()}
            for name in _available_controllers(folder, wanted) if wanted else ():
                places[name] = folder
        return cls(places, 1)

    def paths(self, name: str, wanted: Wanted) -> list[str]:
        """The folders of a group of this name: only where a limit is set."""
        limits = {
            "memory": wanted.memory_bytes,
            "pids": wanted.processes,
            "cpu": wanted.cpus,
        }
        places = {self.places[key] for key in limits.keys() & self.places if limits[key]}
        return [str(folder / name) for folder in sorted(places)]

    def make(self, paths: Sequence[str], wanted: Wanted) -> "Group":
        """A group with these limits, as far as there is a place for each.

        Args:
            paths: its folders, from `paths`.

        Raises:
            SandboxError: the kernel refuses.
        """
        try:
            for path in paths:
                Path(path).mkdir()
            if paths:
                self._set(Path(paths[0]).name, wanted)
        except OSError as error:
            raise SandboxError(f"can't make a control group: {error}") from error
        return Group(paths)

    def _set(self, name: str, wanted: Wanted) -> None:
        values: list[tuple[str, str, str | None]]
        memory = None if wanted.memory_bytes is None else str(wanted.memory_bytes)
        quota = None if wanted.cpus is None else str(round(wanted.cpus * PERIOD_US))
        count = None if wanted.processes is None else str(wanted.processes)
        if self.version == 2:
            values = [
                ("memory", "memory.max", memory),
                ("memory", "memory.swap.max", None if memory is None else "0"),
                ("pids", "pids.max", count),
                ("cpu", "cpu.max", None if quota is None else f"{quota} {PERIOD_US}"),
            ]
        else:
            values = [
                ("memory", "memory.limit_in_bytes", memory),
                ("memory", "memory.memsw.limit_in_bytes", memory),
                ("pids", "pids.max", count),
                ("cpu", "cpu.cfs_period_us", None if quota is None else str(PERIOD_US)),
                ("cpu", "cpu.cfs_quota_us", quota),
            ]
        for controller, file, value in values:
            if controller in self.places and value is not None:
                path = self.places[controller] / name / file
                # Files about swap are only there where the kernel counts it.
                if path.exists() or "sw" not in file:
                    path.write_text(value)


_OOM_FILES = ("memory.oom_control", "memory.events")
"""Where versions 1 and 2 count what was killed."""


class Group:
    """The control groups of one sandbox."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)

    def add(self, pid: int) -> None:
        """Put a process in, and with it what it starts.

        Raises:
            SandboxError: the kernel refuses.
        """
        try:
            for path in self.paths:
                Path(path, "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise SandboxError(f"can't put a process into {path}: {error}") from error

    def out_of_memory(self) -> bool:
        """Has the kernel killed a process of it because its memory limit was reached?"""
        found = (Path(path, name) for path in self.paths for name in _OOM_FILES)
        counts = [
            int(line.split()[1])
            for file in found
            if file.exists()
            for line in file.read_text().splitlines()
            if line.startswith("oom_kill ")
        ]
        return any(counts)

    async def remove(self) -> None:
        """Remove them; missing ones are fine. Their processes must have ended, or be about to.

        Raises:
            SandboxError: some can't be removed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _TIMEOUT_S
        for path in self.paths:
            while not _removed(path):
                if loop.time() > deadline:
                    raise SandboxError(f"the control group {path} is still in use")
                await asyncio.sleep(0.001)


def _removed(path: str) -> bool:
    try:
        os.rmdir(path)  # noqa: PTH106
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise SandboxError(f"can't remove the control group {path}: {error}") from error
    return True


def _available_controllers(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Controllers whose files appear in a group that is made in `folder`."""
    trial_group = folder / f"ale-trial-{os.getpid()}"
    try:
        trial_group.mkdir()
    except OSError:  # not allowed, or no such folder
        return []
    try:
        return [
            name
            for name, file in files.items()
            if os.access(trial_group / file, os.W_OK)
            and os.access(folder / "cgroup.procs", os.W_OK)
        ]
    finally:
        with contextlib.suppress(OSError):
            trial_group.rmdir()


def _ancestors_of(hierarchy: Mounted) -> Iterator[Path]:
    """The folder of this process's group and those above it.

    A group that holds processes can't divide its resources among groups below; one above may.
    """
    folder = hierarchy.folder / hierarchy.own.lstrip("/")
    while folder != hierarchy.folder:
        yield folder
        folder = folder.parent
    yield hierarchy.folder


def _hierarchies() -> Iterator[Mounted]:
    try:
        own = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except FileNotFoundError:  # a kernel without control groups
        return
    for line in own:
        _, names, path = line.split(":", 2)
        controllers = frozenset(names.split(",")) - {""}
        for mount in mounts:
            left, _, right = mount.partition(" - ")
            kind, _, options = right.split(" ", 2)
            root, folder = left.split()[3:5]
            if kind == "cgroup2" and not controllers:
                version = 2
            elif kind == "cgroup" and controllers and controllers <= set(options.split(",")):
                version = 1
            else:
                continue
            inside = path.removeprefix(root) if root != "/" else path
            yield Mounted(folder=Path(folder), own=inside, version=version, controllers=controllers)
