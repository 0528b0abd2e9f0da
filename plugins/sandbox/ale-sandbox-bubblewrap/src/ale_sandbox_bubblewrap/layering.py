"""Freezing the layer of a sandbox, so that forks and snapshots share it."""

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack

from attrs import evolve, frozen

from ale.types import SandboxSpec
from ale_sandbox_bubblewrap.client import ForkServer
from ale_sandbox_bubblewrap.launch import Plan
from ale_sandbox_bubblewrap.sandbox import BubblewrapSandbox
from ale_sandbox_bubblewrap.session import BubblewrapSession
from ale_sandbox_bubblewrap.store import Store, is_empty, new_name

MOST_LAYERS = 32
"""Deeper stacks are merged: each layer slows down every look-up of a file."""


@frozen(kw_only=True)
class Layering:
    """Moves sandboxes to new layers, and copies where that is not possible.

    Attributes:
        network: whether a sandbox shares the host's.
        layered: the layers of a sandbox can be shared.
    """

    store: Store
    plan: Plan
    fork_server: Callable[[], Awaitable[ForkServer]]
    network: Callable[[SandboxSpec], bool]
    layered: bool

    async def freeze(self, sandbox: BubblewrapSandbox) -> tuple[str, ...] | None:
        """Layers with all that the sandbox shows now, which do not change any more.

        The sandbox continues with an empty layer above them. None, and nothing has changed: a
        process would notice, or layers can't be shared here.
        """
        if not self.layered:
            return None
        top, *below = sandbox.record.layers
        if is_empty(self.store.upper(top)):
            return tuple(below)
        async with sandbox.gate:
            sessions = await sandbox.idle_sessions()
            return None if sessions is None else await self._switch(sandbox, sessions)

    async def _switch(
        self, sandbox: BubblewrapSandbox, sessions: Sequence[BubblewrapSession]
    ) -> tuple[str, ...] | None:
        fork_server, before = await self.fork_server(), sandbox.record
        stack, gone = before.layers, before.layers[:0]
        added = [new_name()]
        if len(stack) > MOST_LAYERS:
            added.append(new_name())
            stack, gone = (before.layers[0], added[1]), before.layers[1:]
        self.store.share(before.layers)
        # Recorded before they are made, so that they are removed whatever happens.
        sandbox.record = evolve(before, layers=(*added, *before.layers))
        self.store.records.replace(sandbox.record)
        if gone:
            await fork_server.run_task({"do": "merge", "layers": gone, "into": added[1]}, [])
        folders = [(session, session.folder()) for session in sessions]
        switch = {
            "do": "switch",
            "layers": [added[0], *stack],
            "network": self.network(sandbox.spec),
        }
        with ExitStack() as stacked:
            spaces = await self._descriptors(sandbox, stacked, "mounts", "users")
            if not await fork_server.run_task(switch, spaces):
                sandbox.record = await self.store.forget(sandbox.record, added)
                return None
        for session, folder in folders:
            if folder is not None and not session.closed:
                session.enter(folder)
        sandbox.record = await self.store.forget(sandbox.record, gone)
        sandbox.record = evolve(sandbox.record, layers=(added[0], *stack))
        self.store.records.replace(sandbox.record)
        return stack

    async def copy(self, sandbox: BubblewrapSandbox, target: int) -> None:
        """Copy what the sandbox has written itself into an open layer."""
        with ExitStack() as opened:
            if self.layered:  # its own descriptor is that of the first layer, which may be frozen
                source = os.open(self.store.upper(sandbox.record.layers[0]), os.O_RDONLY)
                opened.callback(os.close, source)
            else:
                (source,) = await self._descriptors(sandbox, opened, "upper")
            await self.copy_from(source, target)

    async def copy_from(self, source: int, target: int) -> None:
        """Put one open layer on top of another, or copy it into an empty one."""
        await (await self.fork_server()).run_task({"do": "copy"}, [source, target])

    async def copy_folder(self, source: int, target: int) -> None:
        """Copy what is in an open folder that is no layer into another one."""
        copy = {"do": "copy", "trees": ["."]}
        await (await self.fork_server()).run_task(copy, [source, target])

    async def _descriptors(
        self, sandbox: BubblewrapSandbox, stack: ExitStack, *names: str
    ) -> Sequence[int]:
        _, descriptors = await sandbox.client.ask(do="descriptors", names=names)
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        return descriptors
