"""Opens a fresh container with the changes of another one, in whose network it runs."""

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from ale.errors import SandboxDamagedError, SandboxError, UnsupportedError
from ale.judging import EVERYTHING, InMemory, Upper
from ale.types import CarriedChange
from ale_sandboxing.container import names
from ale_sandboxing.container.api import Engine
from ale_sandboxing.container.carrying import Carried, Layers
from ale_sandboxing.container.engine import About, Mount, Plan
from ale_sandboxing.container.guard import Guard
from ale_sandboxing.container.here import is_here
from ale_sandboxing.container.sealed import FOLDER

if TYPE_CHECKING:
    from ale_sandboxing.container.sandbox import ContainerSandbox


@frozen(kw_only=True)
class ContainerJudge:
    """See `ale.protocols.Judge`."""

    sandbox: "ContainerSandbox"
    carried: Carried
    pid: int
    """Number of the container's first process."""
    upper: Upper

    @classmethod
    async def of(cls, sandbox: "ContainerSandbox", carried: Carried, pid: int) -> "ContainerJudge":
        """The judge in a sandbox that was filled."""
        upper = Upper({"": carried.target.upper}, carried.target.in_image, carried.paths)
        await asyncio.to_thread(upper.note)
        return cls(sandbox=sandbox, carried=carried, pid=pid, upper=upper)

    async def watch(self, folders: Mapping[str, int]) -> None:
        """Follow which names come and go. Raises as `ale.protocols.Judge.watch`."""

        def watch() -> None:
            try:
                root = names.folder(self.pid, "/")
            except OSError as error:
                raise SandboxError(f"the judge has ended: {error}") from error
            self.upper.watch(root, folders)

        await asyncio.to_thread(watch)

    async def close(self) -> None:
        """Remove it."""
        await asyncio.to_thread(self.upper.close)
        for folder in self.carried.memory:
            folder.close()
        await self.sandbox.close()

    async def settled(self) -> None:
        """Note how its files are now."""
        await asyncio.to_thread(self.upper.note)

    async def made(self) -> Sequence[CarriedChange]:
        """The changes in it since then."""
        return await asyncio.to_thread(self.upper.changes)

    async def used(self) -> Sequence[CarriedChange]:
        """The carried files that were used so far, and what was removed."""
        return await asyncio.to_thread(self.carried.used)

    async def has(self, path: str, *, image: bool = False) -> bool:
        """Whether there is something at a path."""
        layers = self.carried.target
        if image:
            return await asyncio.to_thread(layers.in_image, path) is not None
        return await asyncio.to_thread(layers.has, path)

    @contextlib.asynccontextmanager
    async def guarded(self, folder: str) -> AsyncIterator[Guard]:
        """Notes who opens files of a folder."""
        guard = Guard(folder, self.pid, self.carried.paths)
        with guard.watching():
            yield guard


@frozen(kw_only=True)
class ReadyJudge:
    """One that was started while the agent works, with the image's files."""

    sandbox: "ContainerSandbox"
    plan: Plan
    beside: int
    """Number of the first process of the agent's container, whose network it has."""


@frozen(kw_only=True)
class JudgeOpening:
    """The opening of a judge: which container is copied, and what of it.

    Args:
        since: when the agent began, in seconds since 1970.
        still: nothing runs in it that could change a file meanwhile.
    """

    container: str
    since: float
    still: bool
    without: Collection[str]
    names: Mapping[str, bytes] = field(factory=dict)
    """The mounted files of names as they were when the agent began."""

    def plan(self, about: About, plan: Plan) -> Plan:
        """The judge's container.

        Args:
            plan: the other one's, with the judge's own name and labels.
        """
        bound = {str(path) for path in plan.binds}
        return evolve(
            plan,
            joins=about.id,
            shared=[one for one in about.mounts if _is_shared(one, bound)],
        )

    def begin(self, engine: Engine, about: About, plan: Plan) -> None:
        """Create and start it with the image's files. Blocks. Raises as `launch`."""
        _here(about)
        engine.create(plan)
        engine.start(plan.name)

    def fill(self, engine: Engine, about: About, plan: Plan) -> tuple[Carried, int]:
        """Fill one that runs; also the number of its first process. Blocks. Raises as `launch`."""
        its = engine.about(plan.name)
        carried = Carried(
            _here(about),
            _seen_here(its.layers),
            self.since,
            self.without,
            root=Path(f"/proc/{its.pid}/root"),
            mounts=names.mounts(its.pid),
        )
        self._carry(engine, carried)
        carried.memory = self._fill(engine, about, plan)
        self._own_names(about, carried, its.pid)
        return carried, its.pid

    def launch(self, engine: Engine, about: About, plan: Plan) -> Carried:
        """Create, fill and start it. Blocks.

        Raises:
            UnsupportedError: the files are not to be had from here.
            SandboxError: the engine failed, or the files could not be copied.
        """
        source = _here(about)
        engine.create(plan)
        target = _seen_here(engine.about(plan.name).layers)
        carried = Carried(source, target, self.since, self.without)
        self._carry(engine, carried)
        engine.start(plan.name)
        carried.memory = self._fill(engine, about, plan)
        self._own_names(about, carried, engine.state(plan.name).pid)
        return carried

    def _own_names(self, about: About, carried: Carried, pid: int) -> None:
        """Give it files of names of its own, as they are now or, where left out, were. Blocks.

        Args:
            pid: of its first process.

        Raises:
            UnsupportedError: the kernel does not let this process.
        """
        now = names.mounted(about.pid, self.container)
        for path in names.mounts(pid) & self.names.keys() & now.keys():
            left_out = path in self.without or EVERYTHING in self.without
            names.detach(pid, {path: self.names[path] if left_out else now[path]})
            if not left_out and now[path] != self.names[path]:
                carried.watch_changed(path)

    def _carry(self, engine: Engine, carried: Carried) -> None:
        still = contextlib.nullcontext() if self.still else engine.paused(self.container)
        try:
            with still:
                carried.copy()
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise SandboxDamagedError("the agent has made a path that is too long") from error
            raise SandboxError(f"the agent's files could not be copied: {error}") from error

    def _fill(self, engine: Engine, about: About, plan: Plan) -> list[InMemory]:
        """Copy what lies in memory. Raises as `launch`."""
        if EVERYTHING in self.without:
            return []
        targets = [one.target for one in about.mounts if one.kind == "tmpfs"]
        targets += [] if "/dev" in self.without else ["/dev/shm"]  # noqa: S108
        places = {names.behind_links(about.pid, path) for path in targets}
        places &= names.mounts(about.pid) - {*self.without}
        filled = sorted(path for path in places if _names_in(about.pid, path))
        if not filled:
            return []
        pid = engine.about(plan.name).pid
        with engine.paused(self.container):
            return [self._copied(about.pid, pid, path) for path in filled]

    def _copied(self, source: int, target: int, path: str) -> InMemory:
        """A folder in memory of one process's container, copied to another's."""
        try:
            old, new = names.folder(source, path), names.folder(target, path)
            try:
                Carried(_layer(old), _layer(new), self.since).copy()
            finally:
                os.close(old)
            return InMemory(path, new, self.without)
        except OSError as error:
            raise SandboxError(f"the agent's files in {path} can't be copied: {error}") from error


def seen(started: "asyncio.Future[ReadyJudge]") -> None:
    """Mark its exception as retrieved: nobody may come to wait for it."""
    if not started.cancelled():
        started.exception()


def _layer(folder: int) -> Layers:
    return Layers(upper=Path(f"/proc/self/fd/{folder}"), lower=())


def _names_in(pid: int, folder: str) -> list[str]:
    try:
        opened = names.folder(pid, folder)
    except OSError:
        return []
    try:
        return os.listdir(opened)  # noqa: PTH208 - a descriptor
    finally:
        os.close(opened)


def _is_shared(mount: Mount, bound: Collection[str]) -> bool:
    return (
        mount.kind in ("volume", "bind", "tmpfs")
        and mount.target != FOLDER
        and mount.target not in bound
    )


def _here(about: About) -> Layers:
    """The files of a container that runs on this machine, in namespaces that this process sees.

    The path of its files says nothing by itself: the folder of another engine can have its name.
    """
    if not is_here(about.pid, about.id):
        raise UnsupportedError("the engine runs on another machine, or where none can look into it")
    return _seen_here(about.layers)


def _seen_here(layers: Layers | None) -> Layers:
    if layers is None:
        raise UnsupportedError("the engine keeps its containers' files in no overlay")
    if not Path(layers.upper).is_dir():
        raise UnsupportedError(f"{layers.upper}, where the engine keeps files, is not to be seen")
    return layers
