"""The backend: opens, lists and removes remote sandboxes."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import cwsandbox

from ale.errors import SandboxError, UnsupportedError
from ale.plugin import BuildContext
from ale.types import Capabilities, SandboxInfo, SandboxSpec
from ale_sandbox_cwsandbox import tags
from ale_sandbox_cwsandbox.capabilities import capabilities_of
from ale_sandbox_cwsandbox.client import Client
from ale_sandbox_cwsandbox.credentials import Found, auth_of
from ale_sandbox_cwsandbox.jobs import KEEP, Jobs
from ale_sandbox_cwsandbox.options import CwSandboxOptions
from ale_sandbox_cwsandbox.quota import Quota
from ale_sandbox_cwsandbox.sandbox import Opened, RemoteSandbox, Setup
from ale_sandbox_cwsandbox.wishes import wanted
from ale_sandbox_shell.owner import Owner

_LOG = logging.getLogger(__name__)
_WORKDIR = "/workspace"


class CwSandboxBackend:
    """Opens sandboxes of CoreWeave. See `ale.protocols.SandboxBackend`."""

    name = "cwsandbox"

    def __init__(self, options: CwSandboxOptions, found: Found, context: BuildContext) -> None:
        with contextlib.suppress(RuntimeError):  # another user of the SDK has installed them
            cwsandbox.disable_signal_handlers()
        for note in found.notes:
            _LOG.warning("cwsandbox: %s", note)
        self._options = options
        self._context = context
        self._client = Client(options, auth_of(found, options, context.environ), context.monotonic)
        self._quota = Quota()
        self._owner = Owner.me()
        self._cleaning: set[asyncio.Task[None]] = set()
        self.capabilities: Capabilities = capabilities_of(options, found.notes)

    @contextlib.asynccontextmanager
    async def open(self, spec: SandboxSpec) -> AsyncIterator[RemoteSandbox]:
        """A fresh sandbox, as soon as the quota allows it; removed on exit."""
        sandbox = await self._opened(spec)
        try:
            yield sandbox
        finally:
            await sandbox.close()

    async def _opened(self, spec: SandboxSpec) -> RemoteSandbox:
        id = self._context.new_id()
        arguments = wanted(self._options, spec)
        # Commands never see it: it tells them from what runs them.
        env = {**self._options.env, **spec.env, KEEP: id}
        all_tags = {**self._context.tags, **spec.tags}
        handle = self._client.make(
            **arguments,
            environment_variables=env,
            tags=tags.tags_of(self._options.tags, all_tags, self._owner, id),
        )
        asked: list[asyncio.Future[None]] = []

        async def create() -> None:
            # Once asked for, the answer is waited for: it says what has to be removed.
            asked[:] = [asyncio.ensure_future(self._client.create(handle))]
            await asyncio.shield(asked[0])

        creating = asyncio.ensure_future(self._quota.admit(create))
        try:
            await asyncio.shield(creating)
            await self._client.started(handle)
            return await self._set_up(handle, spec)
        except BaseException:
            creating.cancel()
            self._clean(self._remove([creating, *asked], handle, id))
            raise

    async def _set_up(self, handle: cwsandbox.Sandbox, spec: SandboxSpec) -> RemoteSandbox:
        assert handle.sandbox_id is not None
        opened = Opened(handle.sandbox_id)
        jobs = Jobs(self._client, handle, opened.check)
        workdir = self._options.workdir if spec.workdir is None else spec.workdir
        place = await jobs.install(workdir, _WORKDIR)

        async def release() -> None:
            try:
                await self._client.stop(handle)
            finally:
                self._quota.leave()

        setup = Setup(
            id=handle.sandbox_id,
            jobs=jobs,
            place=place,
            capabilities=self.capabilities,
            monotonic=self._context.monotonic,
            release=release,
            sibling=self.open,
        )
        return RemoteSandbox(setup, opened)

    async def _remove(
        self, creating: "Sequence[asyncio.Future[None]]", handle: cwsandbox.Sandbox, id: str
    ) -> None:
        """Remove a sandbox that could not be opened, and may or may not have been created."""
        await asyncio.wait(creating)
        admitted = creating[0]
        if not admitted.cancelled() and admitted.exception() is None:
            self._quota.leave()
        if handle.sandbox_id is not None:
            await self._client.stop(handle)
        elif any(isinstance(asked.exception(), SandboxError) for asked in creating[1:]):
            # Asked for, and not answered.
            for found in await self._client.list(tags.id_tag(id)):
                await self._client.delete(str(found.sandbox_id))

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
        raise UnsupportedError(f"cwsandbox: there are no snapshots, and so none is called {ref}")
        yield  # makes it a generator

    async def list(self) -> Sequence[SandboxInfo]:
        """Every sandbox that `ale` has at the service, with this key."""
        found = await self._client.list(tags.MARK)
        return [self._info(sandbox) for sandbox in found]

    def _info(self, sandbox: cwsandbox.Sandbox) -> SandboxInfo:
        created = sandbox.created_at
        age = 0.0 if created is None else self._context.clock() - created.timestamp()
        return SandboxInfo(
            id=str(sandbox.sandbox_id),
            backend=self.name,
            tags=tags.spec_tags(sandbox.tags),
            owner_alive=tags.owner_alive(sandbox.tags, self._owner),
            age_s=max(0.0, age),
            detail=f"{sandbox.status}, {' '.join(row.image or '' for row in sandbox.containers)}",
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
