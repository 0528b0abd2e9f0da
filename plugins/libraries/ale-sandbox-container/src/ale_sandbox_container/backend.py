"""Opens, forks, lists and prunes containers as sandboxes, whatever engine runs them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager

from attrs import evolve, frozen

from ale.errors import NotUsableError, SandboxError, UnsupportedError
from ale.plugin import BuildContext
from ale.types import SandboxInfo, SandboxSpec, replace
from ale_sandbox_container import script
from ale_sandbox_container.address import EngineAddress
from ale_sandbox_container.capabilities import capabilities_of
from ale_sandbox_container.commands import Commands
from ale_sandbox_container.compose import Composed, Composer
from ale_sandbox_container.engine import Engine, Image, NotFoundError, Plan
from ale_sandbox_container.files import Files
from ale_sandbox_container.images import Images
from ale_sandbox_container.liveness import why_ended
from ale_sandbox_container.network import Network
from ale_sandbox_container.options import ContainerOptions, root_of
from ale_sandbox_container.orphans import Orphans
from ale_sandbox_container.pipes import PipeFolder, new_name
from ale_sandbox_container.plan import limits_of, plan_of, workdir_of
from ale_sandbox_container.pool import ANSWER_S, WorkerPool
from ale_sandbox_container.probing import NOT_SHARED, shares_files
from ale_sandbox_container.records import LABEL, Folders, Kind, Record, parse
from ale_sandbox_container.sandbox import ContainerSandbox, Setup
from ale_sandbox_container.sealed import SealedShells
from ale_sandbox_container.service_containers import ServiceContainer, service_container
from ale_sandbox_container.tarball import Ownership
from ale_sandbox_container.threads import EngineThreads
from ale_sandbox_container.worker import Handshake
from ale_sandbox_shell.owner import Owner

_TRIES = 100
_LOOK_S = 1.0
_CLOCK_S = 0.02
"""A file system's clock may be so far behind."""


@frozen(kw_only=True)
class Origin:
    """The image that a sandbox starts from."""

    image: Image
    shell: str
    """Id of the image whose shell the supervisor runs; the original, where this is a fork."""
    workdir: str | None = None
    """Of what this is a copy of; None where it is no copy."""
    owned: str | None = None
    """Tag of an image that was made for this sandbox alone, and goes with it."""
    composed: Composed | None = None
    """Where it is one of several containers."""


@frozen(kw_only=True)
class Box:
    """One container, its plan, record and command pipes."""

    spec: SandboxSpec
    origin: Origin
    record: Record
    plan: Plan
    pipes: PipeFolder

    @property
    def name(self) -> str:
        """Of the container."""
        return self.plan.name


class ContainerBackend:
    """Sandboxes in containers of one engine.

    Raises (when made):
        SandboxError: the engine does not answer.
    """

    def __init__(self, engine: Engine, options: ContainerOptions, context: BuildContext) -> None:
        self._engine = engine
        self._options = options
        self._context = context
        self._threads = EngineThreads(options.max_parallel)
        self._folders = Folders(root_of(options, context.environ) / engine.name)
        self._shells = SealedShells(self._folders.root / "shells")
        logs = context.run_directory or self._folders.root
        self._composer = Composer(engine, context.environ, logs / "builds")
        self._images = Images(engine, options, self._threads, logs / "builds", self._composer)
        self._owner = Owner.me()
        self._orphans = Orphans(engine, self._folders, clock=context.clock)
        self.name = engine.name
        self.facts = engine.facts()
        self.capabilities = capabilities_of(
            self.facts, options, sealed=self._shells.usable, services=engine.address is not None
        )

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[ContainerSandbox]:
        """A fresh container, removed on exit."""
        composed = await self._images.composed(spec)
        if composed is not None:
            spec = replace(spec, image=composed.main, build=None)
        image = await self._images.of(spec)
        origin = Origin(image=image, shell=image.id, composed=composed)
        sandbox = await self._start(spec, origin)
        try:
            yield sandbox
        finally:
            await sandbox.close()

    async def check(self, spec: SandboxSpec) -> None:
        """Pull the image of a spec where it is missing; what must be built is not built yet.

        Raises:
            SandboxError: it is not there, or the engine does not answer.
        """
        if spec.build is None:
            await self._images.of(spec)

    @contextlib.asynccontextmanager
    async def restore(self, ref: str, spec: SandboxSpec) -> AsyncIterator[ContainerSandbox]:
        """A fresh container with the files of a snapshot."""
        try:
            image = await self._threads.call(lambda: self._engine.image(_tag("snapshot", ref)))
        except NotFoundError:
            raise SandboxError(f"there is no snapshot {ref!r} (any more)") from None
        kept = parse(image.labels[LABEL], f"image {image.id}")
        # The snapshot's own shell may not be what it was in the image that it began as.
        shell = kept.shell if self._shells.has(kept.shell) else image.id
        # What the spec says is relative to the image that the snapshot began as.
        workdir = None if spec.workdir is None else kept.workdir or None
        sandbox = await self._start(spec, Origin(image=image, shell=shell, workdir=workdir))
        try:
            yield sandbox
        finally:
            await sandbox.close()

    def _claim(self, spec: SandboxSpec, origin: Origin) -> Record:
        """A record under an id that nobody else has; it comes first, so that a crash at any
        moment leaves nothing that `prune` does not know of."""
        for _ in range(_TRIES):
            record = Record(
                id=self._context.new_id(),
                kind="sandbox",
                owner=self._owner,
                created=self._context.clock(),
                tags={**self._context.tags, **spec.tags},
                shell=origin.shell,
                workdir=origin.workdir or workdir_of(self._options, spec, origin.image),
                root=str(self._folders.root),
                stack=origin.composed is not None,
            )
            if self._folders.claim(record):
                return record
        raise SandboxError(f"{_TRIES} ids in a row are taken in {self._folders.root}")

    async def _start(self, spec: SandboxSpec, origin: Origin) -> ContainerSandbox:
        record = self._claim(spec, origin)
        pipes = PipeFolder(self._folders.pipes(record.id))
        try:
            shell = self._shells.inside
            plan = plan_of(self._options, spec, record, origin.image, pipes.folder, shell)
            pipes.make()
        except BaseException:
            self._folders.drop(record.id)
            raise
        box = Box(spec=spec, origin=origin, record=record, plan=plan, pipes=pipes)
        pool = self._first_pool(box)
        launch = self._threads.heavy(lambda: self._launch(box))
        try:
            made = await asyncio.shield(asyncio.wrap_future(launch))
            handshake = await self._await_handshake(pool, box)
            sandbox = ContainerSandbox(self._setup(box, pool, handshake, made_workdir=made))
            if made:
                await self._hand_over(box, handshake, sandbox)
            if LABEL in origin.image.labels:
                # The sandbox that this one is a copy of has been set up.
                await sandbox.agent_started(spec.agent_user)
            if spec.allowed_hosts:
                await sandbox.set_network(False, spec.allowed_hosts)
        except BaseException:
            pool.close(f"sandbox {record.id} was not opened")
            self._abandon(launch, box)
            raise
        return sandbox

    async def _hand_over(self, box: Box, handshake: Handshake, sandbox: ContainerSandbox) -> None:
        """Give a workspace that the engine created to the container's user."""
        if handshake.uid == 0:
            return
        if box.plan.volumes:
            await sandbox.exec(["chmod", "1777", box.record.workdir], user="0")
        else:
            await self._threads.call(self._files(box, handshake).own_workdir)

    def _launch(self, box: Box) -> bool:
        """Create and start the container; True where the image has no such workspace."""
        composed = box.origin.composed
        if composed is None:
            self._engine.create(box.plan)
        else:
            self._composer.create(composed, box.plan)
        made = self._makes_workdir(box)
        self._shells.put(self._engine, box.name, box.origin.shell, box.pipes)
        if composed is None:
            self._engine.start(box.name)
        else:
            self._composer.start(composed, box.plan)
        return made

    def _makes_workdir(self, box: Box) -> bool:
        """True where the image has no such folder. Call it between create and start: Docker creates
        the folder with the container, Podman when it starts."""
        if box.plan.volumes:
            return True
        try:
            found = self._engine.stat(box.name, box.record.workdir)
        except NotFoundError:
            return True
        return found.mtime > box.record.created - _CLOCK_S

    def _abandon(self, launch: "Future[bool]", box: Box) -> None:
        """Remove a half-opened sandbox once the thread that opens it has finished."""
        self._orphans.leaving(box.record.id)
        launch.cancel()
        launch.add_done_callback(lambda _: self._threads.background(lambda: self._clear(box)))

    def _first_pool(self, box: Box) -> WorkerPool:
        """The worker shells that process 1 starts; `_await_handshake` waits for them."""
        key = new_name()
        box.pipes.file(f"{key}\n".encode(), script.KEY)
        return self._pool(box, None, key)

    def _pool(self, box: Box, user: str | None, key: str | None = None) -> WorkerPool:
        async def inject(text: str, base: str) -> None:
            argv = [self._shells.inside, "-c", text]
            env = {script.KEY_VARIABLE: base}
            await self._threads.call(
                lambda: self._engine.inject(
                    box.name, argv, env=env, user=box.plan.user if user is None else user
                )
            )

        return WorkerPool(box.pipes, shell=self._shells.inside, inject=inject, key=key)

    async def _await_handshake(self, pool: WorkerPool, box: Box) -> Handshake:
        """Wait for the first message of the supervisor."""
        waited = 0.0
        while waited < ANSWER_S:
            handshake = await pool.handshake(_LOOK_S)
            if handshake is not None:
                box.pipes.forget(script.KEY)
                return handshake
            waited += _LOOK_S
            state = await self._threads.call(lambda: self._engine.state(box.name))
            if not state.running:
                raise SandboxError(
                    f"the container has ended with {state.exit_code} before its supervisor was "
                    f"ready: its shell could not open {box.pipes.folder}"
                )
        raise SandboxError(
            f"the container's supervisor did not answer within {ANSWER_S:.0f} s. The engine may "
            f"run on another machine, whose containers can't open the pipes in {box.pipes.folder}"
        )

    def _files(self, box: Box, handshake: Handshake) -> Files:
        return Files(
            engine=self._engine,
            container=box.name,
            workdir=box.record.workdir,
            owner=Ownership(uid=handshake.uid, gid=handshake.gid),
            clock=self._context.clock,
            threads=self._threads,
        )

    def _network(self, box: Box) -> Network:
        return Network(
            self._engine,
            box.name,
            self._threads,
            on=box.plan.network,
            may=self._options.network is not False,
            # A stack that began with a network has no other way from container to container.
            switches=box.origin.composed is None or not box.plan.network,
        )

    def _sibling(
        self, box: Box, spec: SandboxSpec
    ) -> AbstractAsyncContextManager[ContainerSandbox]:
        return self.open(replace(spec, tags={**box.spec.tags, **spec.tags}))

    async def _service(self, box: Box, name: str) -> ServiceContainer:
        clock = self._context.clock
        return await service_container(self._engine, box.name, name, self._threads, clock)

    def _setup(
        self, box: Box, pool: WorkerPool, handshake: Handshake, *, made_workdir: bool
    ) -> Setup:
        network = self._network(box)
        return Setup(
            id=box.record.id,
            pipes=box.pipes,
            commands=Commands(
                box.record.id,
                pool,
                user_pool=lambda user: self._pool(box, user),
                restart=lambda: self._restart(box, network),
                root=(None if handshake.uid == 0 else "0") if box.plan.new_privileges else False,
            ),
            bash=handshake.bash,
            files=self._files(box, handshake),
            workdir=box.record.workdir,
            made_workdir=made_workdir and not box.plan.volumes,
            capabilities=self.capabilities,
            limits=limits_of(self._options),
            monotonic=self._context.monotonic,
            fork=lambda: self._fork(box),
            snapshot=lambda: self._snapshot(box),
            release=lambda: self._release(box),
            network=network,
            sibling=lambda spec: self._sibling(box, spec),
            service=lambda name: self._service(box, name),
        )

    async def _restart(self, box: Box, network: Network) -> WorkerPool:
        """End everything in the container, the supervisor too, and start it again."""

        def again() -> None:
            why = why_ended(self._engine, box.name)
            if why is not None:
                raise SandboxError(f"the container of sandbox {box.record.id} {why}")
            self._engine.kill(box.name)
            self._engine.start(box.name)

        pool = self._first_pool(box)
        try:
            await asyncio.shield(asyncio.wrap_future(self._threads.heavy(again)))
            await self._await_handshake(pool, box)
            await network.again()
        except BaseException:
            pool.close(f"sandbox {box.record.id} could not be started again")
            raise
        return pool

    async def _commit(self, box: Box, kind: Kind) -> Record:
        if self._options.read_only:
            raise UnsupportedError(
                "with read_only the workspace is a volume, and volumes are in no layer"
            )
        if box.origin.composed is not None:
            raise UnsupportedError("a sandbox of several containers can't be copied")
        record = self._claim(box.spec, box.origin)
        kept = evolve(record, kind=kind)
        try:
            await asyncio.shield(
                asyncio.wrap_future(
                    self._threads.heavy(
                        lambda: self._engine.commit(
                            box.name, tag=_tag(kind, kept.id), labels=kept.labels
                        )
                    )
                )
            )
        finally:
            self._folders.drop(record.id)
        return kept

    async def _fork(self, box: Box) -> ContainerSandbox:
        kept = await self._commit(box, "fork")
        tag = _tag("fork", kept.id)
        try:
            image = await self._threads.call(lambda: self._engine.image(tag))
            origin = Origin(
                image=image, shell=box.origin.shell, workdir=box.record.workdir, owned=tag
            )
            return await self._start(box.spec, origin)
        except BaseException:
            self._threads.background(lambda: self._engine.remove_image(tag))
            raise

    async def _snapshot(self, box: Box) -> str:
        return (await self._commit(box, "snapshot")).id

    async def _release(self, box: Box) -> None:
        """Kill the container now and remove it in the background."""
        self._orphans.leaving(box.record.id)
        try:
            await asyncio.shield(
                asyncio.wrap_future(self._threads.heavy(lambda: self._engine.kill(box.name)))
            )
        finally:
            self._threads.background(lambda: self._clear(box))

    def _clear(self, box: Box) -> None:
        self._orphans.clear(box.record, box.origin.owned)

    async def list(self) -> Sequence[SandboxInfo]:
        """Every sandbox and snapshot on this engine, of live and dead runs."""
        return await self._threads.call(self._orphans.list)

    async def prune(self) -> Sequence[SandboxInfo]:
        """Remove what dead host processes left."""
        return await self._threads.call(self._orphans.prune)

    async def aclose(self) -> None:
        """Wait for removals in the background; raise if one failed. May be called again."""
        await self._threads.drain()
        await self._threads.call(self._orphans.retry)
        self._engine.close()


def built(
    address: EngineAddress,
    engine: Callable[[str], Engine],
    options: ContainerOptions,
    context: BuildContext,
) -> ContainerBackend:
    """What an adapter's ``build`` returns.

    Args:
        engine: connects to the engine at an address.

    Raises:
        NotUsableError: the engine does not answer, or can't see this machine's files.
    """
    name = address.name
    if not shares_files(address, root_of(options, context.environ)):
        raise NotUsableError(f"{name}: {NOT_SHARED}")
    try:
        return ContainerBackend(engine(address.url), options, context)
    except SandboxError as error:
        raise NotUsableError(f"{name}: {error}") from error


def _tag(kind: str, id: str) -> str:
    return f"ale-{kind}:{id}"
