"""A process that was placed on a node of the cluster, as the driver sees it."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import ray
from attrs import define, field
from ray.exceptions import RayError

from ale_processes.supervised import Ended, Running

_LOST = Ended(-signal.SIGKILL, "was lost with its node")
_REPLY_S = 10.0
"""Seconds more than the grace, in which an actor has to answer."""


@define(eq=False)
class Placed:
    """The process of one actor."""

    _actor: Any
    _ended: "asyncio.Task[Ended]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ended = asyncio.create_task(self._watch())

    async def _watch(self) -> Ended:
        try:
            return Ended(await self._actor.wait.remote())
        except RayError:
            return _LOST
        finally:
            ray.kill(self._actor, no_restart=True)

    async def wait(self) -> Ended:
        """See `Running`."""
        return await asyncio.shield(self._ended)

    async def send(self, number: signal.Signals) -> None:
        """See `Running`."""
        with suppress(RayError):  # it is lost, as `wait` says
            await self._actor.send.remote(int(number))

    async def end(self, grace_s: float) -> None:
        """See `Running`."""
        with suppress(RayError, TimeoutError):
            await asyncio.wait_for(self._actor.end.remote(grace_s), grace_s + _REPLY_S)
        if not self._ended.done():
            ray.kill(self._actor, no_restart=True)
        await self.wait()


@define(eq=False)
class Ranks:
    """torchrun on several nodes, rank 0 on the first: they end together."""

    _nodes: Sequence[Running]
    _grace_s: float
    _ended: "asyncio.Task[Ended]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ended = asyncio.create_task(self._watch())

    async def _watch(self) -> Ended:
        left = {asyncio.create_task(each.wait()) for each in self._nodes}
        failed: Ended | None = None
        while left and failed is None:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            failed = next((each.result() for each in done if each.result().code), None)
        if failed is None:
            return Ended(0)
        await asyncio.gather(*(each.end(self._grace_s) for each in self._nodes))
        await asyncio.gather(*left)
        # torchrun ends with 1 whatever a rank had: the end of a run that is none is a loss.
        return Ended(-signal.SIGKILL, f"lost a rank: torchrun {failed}")

    async def wait(self) -> Ended:
        """See `Running`."""
        return await asyncio.shield(self._ended)

    async def send(self, number: signal.Signals) -> None:
        """See `Running`."""
        await self._nodes[0].send(number)

    async def end(self, grace_s: float) -> None:
        """See `Running`."""
        await asyncio.gather(*(each.end(grace_s) for each in self._nodes))
        await self.wait()
