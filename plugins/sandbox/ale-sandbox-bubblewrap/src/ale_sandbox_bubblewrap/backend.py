"""Opens, lists and prunes bubblewrap sandboxes."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from ale.errors import NotUsableError, SandboxError, UnsupportedError
from ale.plugin import BuildContext
from ale.types import SandboxInfo, SandboxSpec
from ale_sandbox_bubblewrap import facts, planning
from ale_sandbox_bubblewrap.capabilities import capabilities_of
from ale_sandbox_bubblewrap.cgroups import Group, Wanted
from ale_sandbox_bubblewrap.client import ForkServer, SupervisorClient
from ale_sandbox_bubblewrap.control import Control
from ale_sandbox_bubblewrap.layering import Layering
from ale_sandbox_bubblewrap.options import BubblewrapOptions
from ale_sandbox_bubblewrap.sandbox import BubblewrapSandbox, Setup, end
from ale_sandbox_bubblewrap.store import BubblewrapRecord, Store, new_name
from ale_sandbox_process import process_tags
from ale_sandbox_process.records import state_folder
from ale_sandbox_shell.owner import Owner

_TRIES = 100
Fill = Callable[[int], Awaitable[None]]
"""Puts files into a new layer, given its open folder."""


class BubblewrapBackend:
    """Sandboxes of Linux namespaces."""

    name = "bubblewrap"

    def __init__(self, options: BubblewrapOptions, context: BuildContext) -> None:
        environ = context.environ
        root = options.root or Path(environ.get("TMPDIR") or "/tmp")  # noqa: S108
        found = facts.find(root)
        if found.missing is not None:
            raise NotUsableError(f"bubblewrap: {found.missing}")
        self._options = options
        self._context = context
        self._facts = found
        self.capabilities = capabilities_of(found, options)
        self._store = Store(root, state_folder(environ), found.uid)
        self._plan = planning.plan(options, found)
        self._layering = Layering(
            store=self._store,
            plan=self._plan,
            fork_server=self._started,
            layered=self.capabilities.fork == "layer",
        )
        self._fork_server: ForkServer | None = None
        self._starting = asyncio.Lock()
        self._owner = Owner.me()

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

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[BubblewrapSandbox]:
        """A fresh sandbox, removed on exit."""
        self._check(spec)
        sandbox = await self._make(spec, self._claim_sandbox(spec, [new_name()]))
        try:
            yield sandbox
        finally:
            await sandbox.close()

    @contextlib.asynccontextmanager
    async def restore(self, ref: str, spec: SandboxSpec) -> AsyncIterator[BubblewrapSandbox]:
        """A fresh sandbox with the files of a snapshot."""
        self._check(spec)
        with self._store.exclusive():
            snapshots = [
                r for r in self._store.records.all() if r.kind == "snapshot" and r.id == ref
            ]
            if not snapshots:
                raise SandboxError(f"there is no snapshot {ref!r}; its run may have been pruned")
            frozen = snapshots[0].layers
            self._store.share(frozen)
            layers = [new_name(), *(frozen if self._layering.layered else ())]
            record = self._claim_sandbox(spec, layers)
        fill = None if self._layering.layered else self._from_disk(frozen[0])
        sandbox = await self._make(spec, record, fill)
        try:
            yield sandbox
        finally:
            await sandbox.close()

    def _check(self, spec: SandboxSpec) -> None:
        wanted = spec.image or spec.build
        if wanted is not None and not self._options.ignore_image:
            raise UnsupportedError(
                f"the task needs the image {wanted!r}; the sandbox 'bubblewrap' has the host's "
                "programs. Use 'docker' or 'podman', or set sandbox.ignore_image: true"
            )

    def _claim_sandbox(self, spec: SandboxSpec, layers: Sequence[str]) -> BubblewrapRecord:
        return self._claim("sandbox", spec.tags, layers, self._wanted(spec))

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

        def make(id: str) -> BubblewrapRecord:
            groups = () if wanted is None else self._facts.cgroups.paths(f"ale-{id}", wanted)
            return BubblewrapRecord(
                id=id,
                kind=kind,
                folder=str(self._store.folder / id),
                owner=self._owner,
                created=self._context.clock(),
                tags={**self._context.tags, **tags},
                layers=layers,
                groups=groups,
            )

        return self._store.records.claim(self._context.new_id, make)

    async def _make(
        self, spec: SandboxSpec, record: BubblewrapRecord, fill: Fill | None = None
    ) -> BubblewrapSandbox:
        """Make the sandbox of a record; removed again if that fails."""
        client: SupervisorClient | None = None
        control: Control | None = None
        try:
            fork_server = await self._started()
            group = self._facts.cgroups.make(record.groups, self._wanted(spec))
            control = fork_server.controls.make(record.id)
            sock = fork_server.fork(self._request(spec, record))
            client = SupervisorClient(sock, record.id, fork_server.log)
            await client.opened(group, fill)
        except BaseException:
            await asyncio.shield(asyncio.ensure_future(self._abandon(record, client, control)))
            raise
        return BubblewrapSandbox(self._setup(spec, client, control), record)

    async def _abandon(
        self, record: BubblewrapRecord, client: SupervisorClient | None, control: Control | None
    ) -> None:
        if client is not None:
            await end(client, record.id)
        if control is not None:
            control.close()
        await Group(record.groups).remove()
        await self._store.release(record)

    def _request(self, spec: SandboxSpec, record: BubblewrapRecord) -> dict[str, object]:
        return {
            "do": "open",
            "layers": record.layers,
            "control": record.id,
            "network": self._network(spec),
            "tag": record.tag.values(0),
            "limits": planning.rlimits(self._options, self._facts, spec),
        }

    def _network(self, spec: SandboxSpec) -> bool:
        """Shared if the task or the options ask for it and neither forbids it."""
        return False not in (asked := (spec.network, self._options.network)) and True in asked

    def _setup(self, spec: SandboxSpec, client: SupervisorClient, control: Control) -> Setup:
        return Setup(
            capabilities=self.capabilities,
            env=spec.env,
            limits=planning.ulimits(self._options),
            bash="bash" in self._plan.programs,
            network=self._network(spec),
            client=client,
            control=control,
            monotonic=self._context.monotonic,
            fork=lambda sandbox: self._fork(sandbox, spec),
            snapshot=self._snapshot,
            release=self._release,
        )

    async def _fork(self, sandbox: BubblewrapSandbox, spec: SandboxSpec) -> BubblewrapSandbox:
        async with sandbox.layering:
            frozen = await self._layering.freeze(sandbox)
            if frozen is not None:
                record = self._claim_sandbox(spec, [new_name(), *frozen])
                return await self._make(spec, record)
            record = self._claim_sandbox(spec, [new_name(), *sandbox.record.layers[1:]])
            return await self._make(spec, record, lambda to: self._layering.copy(sandbox, to))

    async def _snapshot(self, sandbox: BubblewrapSandbox) -> str:
        async with sandbox.layering:
            frozen = await self._layering.freeze(sandbox)
            if frozen is not None:
                return self._claim("snapshot", sandbox.record.tags, frozen).id
            below = sandbox.record.layers[1:]
            record = self._claim("snapshot", sandbox.record.tags, [new_name(), *below])
            try:
                self._store.make_layer(record.layers[0], self._plan.layout.trees)
                target = os.open(self._store.upper(record.layers[0]), os.O_RDONLY)
                try:
                    await self._layering.copy(sandbox, target)
                finally:
                    os.close(target)
            except BaseException:
                await asyncio.shield(asyncio.ensure_future(self._store.release(record)))
                raise
            return record.id

    def _from_disk(self, layer: str) -> Fill:
        async def fill(target: int) -> None:
            source = os.open(self._store.upper(layer), os.O_RDONLY)
            try:
                await self._layering.copy_from(source, target)
            finally:
                os.close(source)

        return fill

    async def _release(self, sandbox: BubblewrapSandbox) -> None:
        await Group(sandbox.record.groups).remove()
        await self._store.release(sandbox.record)

    async def list(self) -> Sequence[SandboxInfo]:
        """Every sandbox and snapshot of this user, of live runs and of dead ones."""
        return [self._info(record) for record in await asyncio.to_thread(self._store.records.all)]

    async def prune(self) -> Sequence[SandboxInfo]:
        """Remove what belongs to host processes that have ended."""
        removed = []
        await asyncio.to_thread(self._store.records.sweep)
        for record in await asyncio.to_thread(self._store.records.all):
            if not record.owner.alive:
                await process_tags.end_orphans(record.tag)
                await self._store.wait_for_owner_processes(record.owner)
                await Group(record.groups).remove()
                await self._store.release(record)
                removed.append(self._info(record))
        if self._fork_server is None:
            self._store.tidy()
        return removed

    def _info(self, record: BubblewrapRecord) -> SandboxInfo:
        detail = f"{record.kind}, {len(record.layers)} layers"
        return record.info(self.name, self._context.clock(), detail)

    async def aclose(self) -> None:
        """End the fork server. May be called again."""
        if self._fork_server is not None:
            self._fork_server.close()
            self._fork_server = None
            self._store.close()
