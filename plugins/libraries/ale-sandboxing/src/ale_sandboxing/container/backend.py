"""Opens, forks, lists and prunes containers as sandboxes, whatever engine runs them."""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from attrs import evolve

from ale.errors import (
    NotUsableError,
    SandboxDamagedError,
    SandboxError,
    SandboxLostError,
    UnsupportedError,
)
from ale.plugin import BuildContext
from ale.protocols import ServiceContainer
from ale.sandboxes import check_shared
from ale.types import ImageInfo, SandboxInfo, SandboxSpec, replace
from ale_sandboxing.container import names, stream, worker
from ale_sandboxing.container.api import Engine
from ale_sandboxing.container.capabilities import bounds_ipc, capabilities_of
from ale_sandboxing.container.carrying import Carried
from ale_sandboxing.container.commands import Commands
from ale_sandboxing.container.engine import About, ConflictError, NotFoundError
from ale_sandboxing.container.files import Files
from ale_sandboxing.container.here import is_here
from ale_sandboxing.container.images import BUILD, KIND, Images
from ale_sandboxing.container.judging import ContainerJudge, JudgeOpening, ReadyJudge
from ale_sandboxing.container.network import Network, narrowed
from ale_sandboxing.container.options import ContainerOptions
from ale_sandboxing.container.orphans import Orphans
from ale_sandboxing.container.plan import container_name, limits_of, plan_of, workdir_of
from ale_sandboxing.container.pool import WorkerPool
from ale_sandboxing.container.records import LABEL, Kind, Record, parse
from ale_sandboxing.container.sandbox import Box, ContainerSandbox, Origin
from ale_sandboxing.container.sealed import FOLDER, SEALED, SealedShells
from ale_sandboxing.container.stacks import Composed, Composer
from ale_sandboxing.container.tarball import Ownership
from ale_sandboxing.container.threads import EngineThreads
from ale_sandboxing.container.worker import Handshake, Supervisor, Worker
from ale_sandboxing.process import bounds
from ale_sandboxing.shell.owner import Owner

E = TypeVar("E", bound=Engine)

_LOG = logging.getLogger(__name__)
_TRIES = 100
_LOOK_S = 0.05
_LOOKS = 100
_NOTHING = ("/bin/sh", "-c", "")
_RUNS_S = 30.0
"""Seconds in which it runs in a judge that had run it before it had the agent's files."""
_CLOCK_S = 0.02
"""A file system's clock may be so far behind."""


class ContainerBackend:
    """Sandboxes in containers of one engine.

    Raises (when made):
        InputError: a path may not be shared.
        SandboxError: the engine does not answer.
    """

    def __init__(
        self,
        engine: Engine,
        options: ContainerOptions,
        context: BuildContext,
        composer: Composer | None = None,
    ) -> None:
        self._engine = engine
        check_shared(options.allowlist_paths)
        self._options = options
        self._context = context
        self._threads = EngineThreads()
        self._shells = SealedShells(
            engine, self._threads, context.new_id, lambda id: self._record(id, "shell").labels
        )
        logs = context.run_directory or Path(tempfile.gettempdir()) / f"ale-{engine.name}"
        self._images = Images(engine, options, self._threads, logs / "builds")
        self._composer = composer
        self._owner = Owner.me()
        self._lacking: dict[tuple[str, str], bool] = {}
        self._orphans = Orphans(engine, clock=context.clock)
        self.name = engine.name
        self.monotonic = context.monotonic
        self.limits = limits_of(options)
        self.facts = engine.facts()
        self.capabilities = capabilities_of(self.facts, options, services=composer is not None)

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[ContainerSandbox]:
        """A fresh container, removed on exit."""
        composed = await self._composed(spec)
        if composed is not None:
            spec = replace(spec, image=composed.main, build=None)
        image = await self._images.of(spec)
        origin = Origin(image=image, shell=image.id, composed=composed)
        async with self._started(spec, origin) as sandbox:
            yield sandbox

    async def _composed(self, spec: SandboxSpec) -> Composed | None:
        """The containers of a task that needs several; None where it needs one."""
        if spec.build is None or not spec.build.endswith((".yaml", ".yml")):
            return None
        if self._composer is None:
            raise UnsupportedError(
                f"the task needs several containers, which {self.name} can't have here: "
                "use the sandbox 'docker'"
            )
        return await self._composer.of(spec, self._images)

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
        image = await self._threads.call(lambda: self._engine.find_image(_tag("snapshot", ref)))
        if image is None:
            raise SandboxError(f"there is no snapshot {ref!r} (any more)")
        kept = parse(image.labels[LABEL], f"image {image.id}")
        # The snapshot's own shell may not be what it was in the image that it began as.
        first = await self._threads.call(lambda: self._engine.find_image(kept.shell))
        spec = narrowed(spec, cut=kept.cut, hosts=kept.hosts)
        # What the spec says is relative to the image that the snapshot began as.
        workdir = None if spec.workdir is None else kept.workdir or None
        shell = (first or image).id
        origin = Origin(image=image, shell=shell, workdir=workdir, restored=True)
        async with self._started(spec, origin) as sandbox:
            yield sandbox

    @contextlib.asynccontextmanager
    async def _started(self, spec: SandboxSpec, origin: Origin) -> AsyncIterator[ContainerSandbox]:
        sandbox = await self._start(spec, origin)
        try:
            yield sandbox
        finally:
            await sandbox.close()

    def _record(
        self, id: str, kind: Kind, tags: Mapping[str, str] = MappingProxyType({})
    ) -> Record:
        return Record(
            id=id,
            kind=kind,
            owner=self._owner,
            created=self._context.clock(),
            tags={**self._context.tags, **tags},
        )

    def _new_record(self, spec: SandboxSpec, origin: Origin, kind: Kind) -> Record:
        return evolve(
            self._record(self._context.new_id(), kind, spec.tags),
            shell=origin.shell,
            workdir=origin.workdir or workdir_of(self._options, spec, origin.image),
            stack=origin.composed is not None,
        )

    async def _start(self, spec: SandboxSpec, origin: Origin) -> ContainerSandbox:
        for _ in range(_TRIES):
            try:
                return await self._start_once(spec, origin)
            except ConflictError:
                continue  # its id is taken
        raise SandboxError(f"{_TRIES} ids in a row are taken in {self._engine.name}")

    async def _start_once(self, spec: SandboxSpec, origin: Origin) -> ContainerSandbox:
        record = self._new_record(spec, origin, "sandbox")
        shell = await self._shells.of(origin.shell)
        users = self._shells.users(origin.shell)
        planned = plan_of(self._options, spec, record, origin.image, shell, users)
        sysctls = bounds.IPC if bounds_ipc(self.facts, self._options) else {}
        plan = evolve(planned, filtered=self.facts.filters, sysctls=sysctls)
        box = Box(spec=spec, origin=origin, record=record, plan=plan)
        launch = self._threads.heavy(lambda: self._launch(box))
        supervisor: Supervisor | None = None
        try:
            made = await asyncio.shield(asyncio.wrap_future(launch))
            supervisor = await self._supervisor(box)
            handshake = supervisor.handshake.result()
            sandbox = self._sandbox(box, supervisor, made_workdir=made)
            if made:
                await self._hand_over(box, handshake, sandbox)
            if LABEL in origin.image.labels:
                # The sandbox that this one is a copy of has been set up.
                await sandbox.agent_started(spec.agent_user)
            if spec.allowed_hosts:
                await sandbox.set_network(False, spec.allowed_hosts)
        except ConflictError:
            raise  # the container is another's
        except BaseException:
            if supervisor is not None:
                supervisor.close()
            self._abandon(launch, box)
            raise
        return sandbox

    async def _supervisor(self, box: Box) -> Supervisor:
        """Connect to a container that has just been started, and wait for its first message."""
        try:
            attached = await stream.attach(self._engine.url, box.name, self._engine.tls)
            supervisor = Supervisor(attached)
            async with asyncio.timeout(worker.ANSWER_S):
                await asyncio.shield(supervisor.handshake)
        except (SandboxError, TimeoutError) as error:
            why = await self._lost(box)
            message = f"{why}, before its supervisor was ready ({error})"
            raise type(why)(message) from error
        return supervisor

    async def _lost(self, box: Box) -> SandboxError:
        """Why a container's supervisor is heard of no more: of what kind, if the engine knows."""
        what = f"the container of sandbox {box.record.id}"
        for _ in range(_LOOKS):
            try:
                state = await self._threads.call(lambda: self._engine.state(box.name))
            except NotFoundError:
                return SandboxError(f"{what} is gone")
            except SandboxError as error:
                return SandboxError(f"{what} can't be reached: {error}")
            if not state.running:
                if state.out_of_memory:
                    return SandboxDamagedError(f"{what} has ended: it was out of memory")
                if state.exit_code == 0:
                    connection = f"the connection to {self._engine.name} was lost"
                    return SandboxError(f"{what} has ended: {connection}")
                return SandboxLostError(f"{what} has ended: exit code {state.exit_code}")
            await asyncio.sleep(_LOOK_S)
        return SandboxError(f"the connection to {what} was lost")

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
        (self._engine if composed is None else composed).create(box.plan)
        try:
            made = self._makes_workdir(box)
            if composed is None:
                self._engine.start(box.name)
            else:
                composed.start(box.plan)
        except ConflictError as error:
            raise SandboxError(str(error)) from error
        return made

    def _makes_workdir(self, box: Box) -> bool:
        """True where the image has no such folder. Call it between create and start: Docker creates
        the folder with the container, Podman when it starts."""
        if box.plan.volumes:
            return True
        # Of an image by itself it is known once it has been looked at.
        place = (box.plan.image, box.record.workdir)
        lone = not box.plan.binds and box.origin.composed is None
        if lone and place in self._lacking:
            return self._lacking[place]
        try:
            found = self._engine.stat(box.name, box.record.workdir)
        except NotFoundError:
            made = True
        else:
            made = found.mtime > box.record.created - _CLOCK_S
        if lone:
            self._lacking[place] = made
        return made

    def _abandon(self, launch: "Future[Any]", box: Box) -> None:
        """Remove a half-opened sandbox once the thread that opens it has finished."""
        self._orphans.leaving(box.record.id)
        launch.cancel()
        launch.add_done_callback(lambda _: self._threads.background(lambda: self._clear(box)))

    def _pool(self, box: Box, user: str | None) -> WorkerPool:
        async def start() -> Worker:
            as_user = box.plan.user if user is None else user
            id = await self._threads.call(lambda: self._engine.prepare(box.name, [SEALED], as_user))

            async def exit_code() -> int | None:
                return await self._threads.call(lambda: self._engine.exit_code(id))

            return Worker(await stream.start(self._engine.url, id, self._engine.tls), exit_code)

        return WorkerPool(start, box.starting)

    def _files(self, box: Box, handshake: Handshake) -> Files:
        return Files(
            engine=self._engine,
            container=box.name,
            workdir=box.record.workdir,
            owner=Ownership(uid=handshake.uid, gid=handshake.gid),
            clock=self._context.clock,
            threads=self._threads,
            mounts=handshake.mounts - {FOLDER},
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

    def _sandbox(self, box: Box, supervisor: Supervisor, *, made_workdir: bool) -> ContainerSandbox:
        network = self._network(box)
        handshake = supervisor.handshake.result()
        root = None if handshake.uid == 0 else "0"
        commands = Commands(
            box.record.id,
            supervisor,
            pools=lambda user: self._pool(box, user),
            restart=lambda: self._restart(box, network),
            lost=lambda: self._lost(box),
            root=root if box.plan.new_privileges else False,
        )
        return ContainerSandbox(
            self,
            box,
            commands,
            self._files(box, handshake),
            network,
            bash=handshake.bash,
            made_workdir=made_workdir and not box.plan.volumes,
        )

    async def service(self, box: Box, name: str) -> ServiceContainer:
        """Another container of a task.

        Raises:
            SandboxError: there is none of that name.
        """
        if self._composer is None:
            raise SandboxError(f"the task has no service {name!r}: {self.name} can have none here")
        return await self._composer.service(box.name, name, self._threads, self._context.clock)

    async def _restart(self, box: Box, network: Network) -> Supervisor:
        """End everything in the container, the supervisor too, and start it again."""

        def again() -> None:
            self._engine.kill(box.name)
            self._engine.start(box.name)

        await self._threads.heavily(again)
        try:
            supervisor = await self._supervisor(box)
        except SandboxError as error:
            await self._check_damage(box, error)
            raise
        await network.again()
        return supervisor

    async def _check_damage(self, box: Box, error: SandboxError) -> None:
        """Raise where a container runs and says nothing, and a fresh one of its kind does: a file
        that every program reads at its start may be a pipe that nobody writes to.

        Raises:
            SandboxDamagedError: engine and image are well.
        """
        try:
            if not (await self._threads.call(lambda: self._engine.state(box.name))).running:
                return
            async with self._started(box.spec, box.origin):
                pass
        except SandboxError:
            return
        raise SandboxDamagedError(f"{error}; a fresh sandbox starts") from error

    async def _commit(self, box: Box, kind: Kind, network: Network) -> Record:
        if self._options.read_only:
            raise UnsupportedError(
                "with read_only the workspace is a volume, and volumes are in no layer"
            )
        if not self.facts.pauses:
            raise UnsupportedError("this engine can't pause a container, which a copy of it needs")
        if box.origin.composed is not None:
            raise UnsupportedError("a sandbox of several containers can't be copied")
        made = self._new_record(box.spec, box.origin, kind)
        kept = evolve(made, cut=network.cut, hosts=network.hosts)

        async def commit() -> None:
            async with box.starting:
                tag = _tag(kind, kept.id)
                await self._threads.heavily(
                    lambda: self._engine.commit(box.name, tag=tag, labels=kept.labels)
                )

        # Shielded: the lock is held until the engine has finished.
        await asyncio.shield(asyncio.ensure_future(commit()))
        return kept

    async def fork(self, box: Box, spec: SandboxSpec, network: Network) -> ContainerSandbox:
        """Open a copy of a sandbox.

        Args:
            spec: what the sandbox has now, its network apart.
        """
        kept = await self._commit(box, "fork", network)
        tag = _tag("fork", kept.id)
        try:
            image = await self._threads.call(lambda: self._engine.image(tag))
            origin = Origin(
                image=image, shell=box.origin.shell, workdir=box.record.workdir, owned=tag
            )
            return await self._start(network.of_a_copy(spec), origin)
        except BaseException:
            self._threads.background(lambda: self._engine.remove_image(tag))
            raise

    async def names(self, box: Box) -> Mapping[str, bytes]:
        """The files of names that the engine mounts, for a judge; empty where there is none, or
        where nobody may write them."""
        if "judge" not in self.capabilities.features or box.plan.read_only:
            return {}

        def read() -> Mapping[str, bytes]:
            state = self._engine.state(box.name)
            try:
                here = is_here(state.pid, state.id)
                return names.mounted(state.pid, box.name) if here else {}
            except OSError:  # it has ended
                return {}

        return await self._threads.call(read)

    @contextlib.asynccontextmanager
    async def judge(
        self, box: Box, how: JudgeOpening, ready: "ReadyJudge | None"
    ) -> AsyncIterator[ContainerJudge]:
        """A fresh container with the changes of a sandbox's.

        Args:
            ready: one that runs already, if it still has the sandbox's network.
        """
        about = await self._threads.call(lambda: self._engine.about(box.name))
        judge: ContainerJudge | None = None
        if ready is not None:
            judge = await self._filled(box, how, about, ready)
        if judge is None:
            judge = await self._launched(box, how, about)
        try:
            yield judge
        finally:
            await judge.close()

    async def ready_judge(self, box: Box, user: str | None) -> ReadyJudge:
        """A judge that runs, with the image's files.

        Args:
            user: of the commands that it will run.
        """
        about = await self._threads.call(lambda: self._engine.about(box.name))
        how = JudgeOpening(container=box.name, since=0.0, still=True, without=())
        made = self._judge_box(box, how, about)
        sandbox = await self._judge_sandbox(
            made, self._threads.heavy(lambda: how.begin(self._engine, about, made.plan))
        )
        try:
            await sandbox.exec(_NOTHING, user=user)
        except BaseException:
            await sandbox.close()
            raise
        return ReadyJudge(sandbox=sandbox, plan=made.plan, beside=about.pid)

    async def _filled(
        self, box: Box, how: JudgeOpening, about: About, ready: ReadyJudge
    ) -> ContainerJudge | None:
        """The judge that runs already, filled; None where it can't be. Raises as `_fill`."""
        try:
            return await self._fill(box, how, about, ready)
        except BaseException as error:
            await ready.sandbox.close()
            if isinstance(error, UnsupportedError):
                return None
            raise

    async def _fill(
        self, box: Box, how: JudgeOpening, about: About, ready: ReadyJudge
    ) -> ContainerJudge:
        """The judge, filled.

        Raises:
            UnsupportedError: it has not the network of the agent's container any more, which was
                restarted, or not all files can be copied into one that runs.
            SandboxDamagedError: with the agent's files nothing runs in it, and without them it did.
        """
        if ready.beside != about.pid:
            raise UnsupportedError("the agent's container has another network now")
        async with box.starting:
            filling = self._threads.heavy(lambda: how.fill(self._engine, about, ready.plan))
            carried, pid = await asyncio.shield(asyncio.wrap_future(filling))
        result = await ready.sandbox.exec(_NOTHING, timeout_s=_RUNS_S)
        if result.exit_code != 0:
            said = result.stderr.decode(errors="replace").strip()
            raise SandboxDamagedError(f"with the agent's files a fresh container runs none: {said}")
        return await ContainerJudge.of(ready.sandbox, carried, pid)

    async def _launched(self, box: Box, how: JudgeOpening, about: About) -> ContainerJudge:
        made = self._judge_box(box, how, about)
        launch = self._threads.heavy(lambda: how.launch(self._engine, about, made.plan))
        async with box.starting:
            launched = asyncio.wrap_future(launch)
            launched.add_done_callback(_seen)
            try:
                carried = await asyncio.shield(launched)
            except BaseException:
                self._abandon(launch, made)
                raise
        sandbox = await self._judge_sandbox(made, launch)
        state = await self._threads.call(lambda: self._engine.state(made.name))
        return await ContainerJudge.of(sandbox, carried, state.pid)

    def _judge_box(self, box: Box, how: JudgeOpening, about: About) -> Box:
        origin = evolve(box.origin, owned=None, composed=None)
        record = self._new_record(box.spec, origin, "sandbox")
        named = evolve(box.plan, name=container_name(record.id), labels=record.labels)
        plan = how.plan(about, named)
        return Box(spec=box.spec, origin=origin, record=record, plan=plan, beside=box)

    async def _judge_sandbox(self, made: Box, launch: "Future[Any]") -> ContainerSandbox:
        try:
            await asyncio.shield(asyncio.wrap_future(launch))
            return self._sandbox(made, await self._supervisor(made), made_workdir=False)
        except BaseException:
            self._abandon(launch, made)
            raise

    async def snapshot(self, box: Box, network: Network) -> str:
        """Keep a sandbox's files, for `restore`."""
        return (await self._commit(box, "snapshot", network)).id

    async def release(self, box: Box) -> None:
        """End the container now and remove it in the background; a judge's wholly there."""
        self._orphans.leaving(box.record.id)
        if box.beside is not None:
            box.beside.judges.append(self._threads.background(lambda: self._clear(box)))
            return
        judges = list(box.judges)
        end = self._engine.end if box.origin.composed is None else self._engine.kill
        try:
            await self._threads.heavily(lambda: end(box.name))
        finally:
            self._threads.background(lambda: self._clear(box, judges))

    def _clear(self, box: Box, first: "Sequence[Future[None]]" = ()) -> None:
        """Remove a sandbox's container, after those that use its network."""
        wait(first)
        self._orphans.clear(box.record, box.origin.owned)

    async def images(self) -> Sequence[ImageInfo]:
        """Every image that sandboxes were built or copied to. See `ale.protocols.KeepsImages`."""
        return await self._threads.call(self._list_with_layers)

    async def remove_builds(self) -> Sequence[ImageInfo]:
        """Remove images of Dockerfiles. See `ale.protocols.KeepsImages`."""
        return await self._threads.call(self._remove_builds)

    def _list_images(self) -> Sequence[ImageInfo]:
        return [
            ImageInfo(
                id=found.id,
                backend=self._engine.name,
                names=tuple(found.names),
                kind=found.labels[KIND],
                size_bytes=found.size,
                age_s=max(0.0, self._context.clock() - found.created),
            )
            for found in self._engine.images(KIND)
        ]

    def _list_with_layers(self) -> Sequence[ImageInfo]:
        found = self._list_images()
        return [replace(info, layers=self._engine.layers(info.id)) for info in found]

    def _remove_builds(self) -> Sequence[ImageInfo]:
        removed, failed = [], []
        for info in self._list_images():
            if info.kind != BUILD:
                continue
            try:
                self._engine.remove_image(info.names[0] if info.names else info.id)
            except ConflictError as error:
                _LOG.info("%s: %s stays: %s", info.backend, info.id, error)
            except SandboxError as error:
                failed.append(f"image {info.id}: {error}")
            else:
                removed.append(info)
        if failed:
            raise SandboxError(f"{self._engine.name} could not remove:\n  " + "\n  ".join(failed))
        return removed

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
        await self._threads.call(self._shells.remove)
        self._engine.close()


def built(
    make: Callable[[], E],
    options: ContainerOptions,
    context: BuildContext,
    composer: Callable[[E], Composer | None] = lambda engine: None,
) -> ContainerBackend:
    """What an adapter's ``build`` returns.

    Args:
        make: connects to the engine.
        composer: of an engine that can have sandboxes of several containers.

    Raises:
        NotUsableError: the engine does not answer.
    """
    try:
        engine = make()
        return ContainerBackend(engine, options, context, composer(engine))
    except SandboxError as error:
        raise NotUsableError(str(error)) from error


def _seen(launched: "asyncio.Future[Carried]") -> None:
    """Mark its exception as retrieved: whoever waited for it may have been cancelled."""
    if not launched.cancelled():
        launched.exception()


def _tag(kind: str, id: str) -> str:
    return f"ale-{kind}:{id}"
