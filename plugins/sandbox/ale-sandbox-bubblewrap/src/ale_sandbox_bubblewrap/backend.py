"""Opens bubblewrap sandboxes, and copies them."""

import asyncio
import errno
import os
import shlex
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path
from typing import Any

from ale.errors import (
    InputError,
    NotUsableError,
    SandboxDamagedError,
    SandboxError,
    UnsupportedError,
)
from ale.judging import EVERYTHING, InMemory, opened_judge
from ale.plugin import BuildContext
from ale.sandboxes import check_shared
from ale.types import SandboxInfo, SandboxSpec
from ale_sandbox_bubblewrap import facts, planning, process_lock
from ale_sandbox_bubblewrap.capabilities import capabilities_of
from ale_sandbox_bubblewrap.cgroups import Group, Wanted
from ale_sandbox_bubblewrap.client import ForkServer, SupervisorClient
from ale_sandbox_bubblewrap.control import Control
from ale_sandbox_bubblewrap.judging import BubblewrapJudge, Carried
from ale_sandbox_bubblewrap.layering import Layering
from ale_sandbox_bubblewrap.options import BubblewrapOptions
from ale_sandbox_bubblewrap.sandbox import BubblewrapSandbox, end
from ale_sandbox_bubblewrap.store import BubblewrapRecord, Store, new_name
from ale_sandboxing.process.backend import HostBackend

_SHM = "/dev/shm"  # noqa: S108
_NOTHING = ("/bin/sh", "-c", "")
_RUNS_S = 10.0
"""Seconds in which it runs."""
Fill = Callable[[int], Awaitable[None]]
"""Puts files into a new layer, given its open folder."""


class BubblewrapBackend(HostBackend[BubblewrapRecord, BubblewrapSandbox]):
    """Sandboxes of Linux namespaces."""

    name = "bubblewrap"

    def __init__(self, options: BubblewrapOptions, context: BuildContext) -> None:
        super().__init__(options, context, BubblewrapRecord)
        if not self.root.is_dir():
            hint = f"mkdir -p {shlex.quote(str(self.root))}"
            raise InputError.of(f"no such folder: {self.root}", path="sandbox.root", hint=hint)
        found = facts.find(self.root)
        if found.missing is not None:
            raise NotUsableError(f"bubblewrap: {found.missing}")
        # Its user is this one, or for root one that has fewer rights.
        check_shared(options.allowlist_paths, unreadable=True)
        self._options = options
        self._facts = found
        self.capabilities = capabilities_of(found, options)
        self._store = Store(self.root, self.records, found.uid)
        self._plan = planning.plan(options, found)
        self._layering = Layering(
            store=self._store,
            plan=self._plan,
            fork_server=self._started,
            network=self._network,
            layered=self.capabilities.fork == "layer",
        )
        self._fork_server: ForkServer | None = None
        self._starting = asyncio.Lock()

    async def _started(self) -> ForkServer:
        """The fork server, started when it is first needed."""
        async with self._starting:
            if self._fork_server is None:
                self._store.open()
                settings = {
                    "uid": self._facts.uid,
                    "store": str(self._store.folder),
                    "plan": self._plan._asdict(),
                }
                self._fork_server = await ForkServer.start(settings, self._store.lock_fd)
            return self._fork_server

    def _network(self, spec: SandboxSpec) -> bool:
        """Shared if the task or the options ask for it and neither forbids it."""
        return False not in (asked := (spec.network, self._options.network)) and True in asked

    async def make(self, spec: SandboxSpec, snapshot: str | None = None) -> BubblewrapSandbox:
        """A fresh sandbox over the layers of a snapshot, or with a copy of them."""
        if snapshot is None:
            return await self._make(spec, [new_name()])
        with self._store.exclusive():
            frozen = self.find_snapshot(snapshot).layers
            self._store.share(frozen)
            below = frozen if self._layering.layered else ()
            record = self._claim("sandbox", spec.tags, [new_name(), *below], self._wanted(spec))
        if self._layering.layered:
            return await self._open(spec, record)
        with _folder(self._store.upper(frozen[0])) as source:
            return await self._open(spec, record, lambda to: self._layering.copy_from(source, to))

    async def _make(
        self, spec: SandboxSpec, layers: Sequence[str], fill: Fill | None = None
    ) -> BubblewrapSandbox:
        record = self._claim("sandbox", spec.tags, layers, self._wanted(spec))
        return await self._open(spec, record, fill)

    def _wanted(self, spec: SandboxSpec) -> Wanted:
        return planning.wanted(self._options, self._facts, spec)

    def _claim(
        self,
        kind: str,
        tags: Mapping[str, str],
        layers: Sequence[str],
        wanted: Wanted | None = None,
    ) -> BubblewrapRecord:
        """A record under a free id."""

        def make(given: dict[str, Any]) -> BubblewrapRecord:
            name, found = given["id"], self._facts.cgroups
            groups = () if wanted is None else found.paths(f"ale-{name}", wanted)
            folder = str(self._store.folder / name)
            return BubblewrapRecord(folder=folder, layers=layers, groups=groups, **given)

        return self.claim(kind, tags, make)

    async def _open(
        self, spec: SandboxSpec, record: BubblewrapRecord, fill: Fill | None = None
    ) -> BubblewrapSandbox:
        """Open the sandbox of a record; removed again if that fails."""
        client: SupervisorClient | None = None
        control: Control | None = None
        try:
            fork_server = await self._started()
            group = self._facts.cgroups.make(record.groups, self._wanted(spec))
            control = fork_server.controls.make(record.id)
            sock = fork_server.fork(
                {
                    "do": "open",
                    "layers": record.layers,
                    "control": record.id,
                    "network": self._network(spec),
                    "tag": record.tag.values(0),
                    "limits": planning.rlimits(self._options, self._facts, spec),
                }
            )
            client = SupervisorClient(sock, record.id, fork_server.log)
            await client.opened(group, fill)
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self._abandon(record, client, control)))
            raise
        return BubblewrapSandbox(
            self,
            record,
            spec,
            client,
            control,
            limits=planning.ulimits(self._options),
            bash="bash" in self._plan.programs,
            network=self._network(spec),
            judges=self.judge,
        )

    async def _abandon(
        self, record: BubblewrapRecord, client: SupervisorClient | None, control: Control | None
    ) -> None:
        if client is not None:
            await end(client, record.id)
        if control is not None:
            control.close()
        await self.remove(record)

    async def fork(self, sandbox: BubblewrapSandbox) -> BubblewrapSandbox:
        """A sandbox over the same layers, or with a copy of the topmost."""
        async with sandbox.layering:
            frozen = await self._layering.freeze(sandbox)
            if frozen is not None:
                return await self._make(sandbox.spec, [new_name(), *frozen])
            layers = [new_name(), *sandbox.record.layers[1:]]
            fill = lambda to: self._layering.copy(sandbox, to)  # noqa: E731
            return await self._make(sandbox.spec, layers, fill)

    def judge(
        self, sandbox: BubblewrapSandbox, without: Collection[str]
    ) -> AbstractAsyncContextManager[BubblewrapJudge]:
        """A sandbox with a copy of the layers in which the agent worked."""
        return opened_judge(lambda left_out: self._judge(sandbox, left_out), without)

    @asynccontextmanager
    async def _judge(
        self, sandbox: BubblewrapSandbox, without: Collection[str]
    ) -> AsyncIterator[BubblewrapJudge]:
        worked, below = _layers(sandbox)
        names = new_name(), new_name()
        carried = Carried(
            sources=[self._store.upper(layer) for layer in worked],
            target=self._store.upper(names[0]),
            trees=self._plan.layout.trees,
            below=[self._store.upper(layer) for layer in below],
            since=0.0 if sandbox.began is None else sandbox.began.at,
            without=without,
        )

        async def fill(to: int) -> None:
            # An empty one below: so its first process is started on what the host has.
            self._store.make_layer(names[1], self._plan.layout.trees)
            for source in reversed(carried.sources[1:]):
                with _folder(source) as frozen:
                    await self._layering.copy_from(frozen, to)
            await self._layering.copy(sandbox, to)
            try:
                await asyncio.to_thread(carried.mark)
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:
                    damage = "the agent has made a path that is too long"
                    raise SandboxDamagedError(damage) from error
                raise

        async with sandbox.layering:
            judge = await self._make(sandbox.spec, [*names, *below], fill)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(judge.close)
            result = await judge.exec(_NOTHING, timeout_s=_RUNS_S)
            if result.exit_code != 0:
                said = result.stderr.decode(errors="replace").strip()
                raise SandboxError(f"no command runs: {said or 'none has ended in time'}")
            memory = await self._copy_memory(sandbox, judge, without)
            stack.callback(memory.close)
            filled = await BubblewrapJudge.of(judge, carried, memory)
            stack.callback(filled.upper.close)
            yield filled

    async def _copy_memory(
        self, source: BubblewrapSandbox, target: BubblewrapSandbox, without: Collection[str]
    ) -> InMemory:
        """The files in memory, copied to a judge."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        _, (new,) = await target.client.ask(do="open", path=_SHM, flags=flags)
        if EVERYTHING not in without:
            _, (old,) = await source.client.ask(do="open", path=_SHM, flags=flags)
            try:
                await self._layering.copy_folder(old, new)
            finally:
                os.close(old)
        try:
            return await asyncio.to_thread(InMemory, _SHM, new, without)
        except OSError as error:
            raise SandboxError(f"the agent's files in {_SHM} can't be copied: {error}") from error

    async def snapshot(self, sandbox: BubblewrapSandbox) -> str:
        """Keep the layers, or a copy of the topmost."""
        async with sandbox.layering:
            frozen = await self._layering.freeze(sandbox)
            if frozen is not None:
                return self._claim("snapshot", sandbox.record.tags, frozen).id
            name = new_name()
            layers = [name, *sandbox.record.layers[1:]]
            record = self._claim("snapshot", sandbox.record.tags, layers)
            try:
                self._store.make_layer(name, self._plan.layout.trees)
                with _folder(self._store.upper(name)) as target:
                    await self._layering.copy(sandbox, target)
            except BaseException:
                await asyncio.shield(asyncio.ensure_future(self.remove(record)))
                raise
            return record.id

    async def remove(self, record: BubblewrapRecord) -> None:
        """Remove the control groups, the layers that nobody else has, and the record."""
        await Group(record.groups).remove()
        await self._store.release(record)

    def detail(self, record: BubblewrapRecord) -> str:
        """How many layers it has."""
        return f"{record.kind}, {len(record.layers)} layers"

    async def end_orphans(self, record: BubblewrapRecord) -> None:
        """Also wait for the processes that hold the sandbox."""
        await super().end_orphans(record)
        await process_lock.wait_released(self._store.owners, record.owner)

    async def prune(self) -> Sequence[SandboxInfo]:
        """Remove what belongs to host processes that have ended, and empty folders."""
        removed = await super().prune()
        if self._fork_server is None:
            self._store.tidy()
        return removed

    async def aclose(self) -> None:
        """End the fork server. May be called again."""
        if self._fork_server is not None:
            self._fork_server.close()
            self._fork_server = None
        self._store.close()


def _layers(sandbox: BubblewrapSandbox) -> tuple[Sequence[str], Sequence[str]]:
    """The layers in which the agent worked, and those below them.

    A fork or snapshot adds a layer in which it works on.

    Raises:
        UnsupportedError: they can't be told apart.
    """
    layers, began = sandbox.record.layers, sandbox.began
    if began is None:
        if len(layers) > 1:
            raise UnsupportedError("a snapshot does not tell the agent's changes from the start")
        return layers, ()
    first = len(layers) - len(began.below)
    if first < 1 or layers[first:] != began.below:
        raise UnsupportedError("it was forked so often that its layers were merged")
    return layers[:first], began.below


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
