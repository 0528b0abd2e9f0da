"""The backend: opens, lists and removes remote sandboxes."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

from ale.errors import SandboxError, UnsupportedError
from ale.plugin import BuildContext
from ale.types import Capabilities, SandboxInfo, SandboxSpec
from ale_sandboxing.remote.client import Client
from ale_sandboxing.remote.jobs import KEEP, Jobs
from ale_sandboxing.remote.options import RemoteOptions
from ale_sandboxing.remote.owners import owner_alive, owner_text
from ale_sandboxing.remote.quota import Quota
from ale_sandboxing.remote.sandbox import RemoteSandbox
from ale_sandboxing.remote.service import Listed, Remote, Request, Service
from ale_sandboxing.shell.owner import Owner

_LOG = logging.getLogger(__name__)
_WORKDIR = "/workspace"
_ANSWER_S = 2.0


class RemoteBackend:
    """Opens sandboxes of one service. See `ale.protocols.SandboxBackend`."""

    def __init__(
        self,
        service: Service,
        options: RemoteOptions,
        capabilities: Capabilities,
        context: BuildContext,
    ) -> None:
        self.name = service.name
        self.capabilities = capabilities
        self._service = service
        self._options = options
        self._context = context
        self._client = Client(service, options.retry_s, context.monotonic)
        self._quota = Quota()
        self._owner = Owner.me()
        self._cleaning: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[RemoteSandbox]:
        """A fresh sandbox, as soon as the quota allows it; removed on exit."""
        sandbox = await self._opened(spec)
        try:
            yield sandbox
        finally:
            await sandbox.close()

    async def check(self, spec: SandboxSpec) -> None:
        """Ask the service something that it answers with the right key only; nothing is created.

        Raises:
            SandboxError: it refuses this client, or can't be reached.
            UnsupportedError: it has no such sandbox.
        """
        self._service.prepare(self._request(spec))
        await self._client.list()

    def _request(self, spec: SandboxSpec) -> Request:
        id = self._context.new_id()
        return Request(
            id=id,
            spec=spec,
            # Commands never see the last one: it tells them from what runs them.
            env={**self._options.env, **spec.env, KEEP: id},
            tags={**self._context.tags, **spec.tags},
            owner=owner_text(self._owner),
        )

    async def _opened(self, spec: SandboxSpec) -> RemoteSandbox:
        request = self._request(spec)
        remote = self._service.prepare(request)
        asked: list[asyncio.Future[None]] = []

        async def create() -> None:
            # Once asked for, the answer is waited for: it says what has to be removed.
            asked[:] = [asyncio.ensure_future(self._client.create(remote))]
            await asyncio.shield(asked[0])

        creating = asyncio.ensure_future(self._quota.admit(create))
        try:
            await asyncio.shield(creating)
            await self._client.started(remote, self._options.start_timeout_s)
            return await self._set_up(remote, spec)
        except BaseException:
            creating.cancel()
            self._clean(self._remove([creating, *asked], remote, request.id))
            raise

    async def _set_up(self, remote: Remote, spec: SandboxSpec) -> RemoteSandbox:
        jobs = Jobs(self._client, remote)
        workdir = self._options.workdir if spec.workdir is None else spec.workdir
        place = await jobs.install(workdir, _WORKDIR)
        return RemoteSandbox(
            str(remote.id),
            self.capabilities,
            jobs,
            place,
            monotonic=self._context.monotonic,
            open_another=self.open,
            remove=lambda: self._release(remote),
        )

    async def _release(self, remote: Remote) -> None:
        """End a sandbox."""
        try:
            await self._client.stop(remote)
        finally:
            self._quota.leave()

    async def _remove(
        self, creating: "Sequence[asyncio.Future[None]]", remote: Remote, id: str
    ) -> None:
        """Remove a sandbox that could not be opened, and may or may not have been created."""
        # Its answer names the sandbox. A service that answers only when it runs may take long.
        _, unanswered = await asyncio.wait(creating, timeout=_ANSWER_S)
        for asked in unanswered:
            asked.cancel()
        await asyncio.wait(creating)
        admitted = creating[0]
        if not admitted.cancelled() and admitted.exception() is None:
            self._quota.leave()
        if remote.id is not None:
            await self._client.stop(remote)
        elif any(_unanswered(asked) for asked in creating[1:]):
            for found in await self._client.list(id):
                await self._client.delete(found.id)

    def _clean(self, removal: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(removal)
        self._cleaning.add(task)
        task.add_done_callback(self._cleaned)

    def _cleaned(self, task: "asyncio.Task[None]") -> None:
        self._cleaning.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _LOG.warning("%s", task.exception())

    @contextlib.asynccontextmanager
    async def restore(self, ref: str, spec: SandboxSpec) -> AsyncIterator[RemoteSandbox]:
        """Not possible."""
        raise UnsupportedError(f"{self.name}: there are no snapshots, and so none is called {ref}")
        yield  # makes it a generator

    async def list(self) -> Sequence[SandboxInfo]:
        """Every sandbox that `ale` has at the service, with this key."""
        return [self._info(listed) for listed in await self._client.list()]

    def _info(self, listed: Listed) -> SandboxInfo:
        age = 0.0 if listed.created is None else self._context.clock() - listed.created
        return SandboxInfo(
            id=listed.id,
            backend=self.name,
            tags=listed.tags,
            owner_alive=owner_alive(listed.owner, self._owner),
            age_s=max(0.0, age),
            detail=listed.detail,
        )

    async def prune(self) -> Sequence[SandboxInfo]:
        """Remove what dead processes of this machine have left."""
        left = [info for info in await self.list() if not info.owner_alive]
        for info in left:
            await self._client.delete(info.id)
        return left

    async def aclose(self) -> None:
        """Wait for removals in the background. May be called again."""
        while self._cleaning:
            await asyncio.wait(self._cleaning)


def _unanswered(asked: "asyncio.Future[None]") -> bool:
    return asked.cancelled() or isinstance(asked.exception(), SandboxError)
