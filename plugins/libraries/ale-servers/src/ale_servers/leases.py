"""Which run changes a server's weights: one at a time, told to every other run.

A run that will give a server weights holds it, and says so again every few seconds. A run that was
killed no longer does, and its lease expires. `ale serve` keeps the leases of its server, so they
need no registry, and two runs that found the server in different ways see each other.
"""

import time
from collections.abc import Callable, Mapping

from attrs import define, field

from ale.errors import LLMError
from ale_servers.protocol import HeldError, InferenceServer, Leased
from ale_servers.records import HoldRequest, Lease, ServerStatus, Weights

_MOST = 1024
EXPIRY_S = 30.0
"""Seconds after which a lease that was not renewed has expired."""


@define(eq=False, slots=False)
class Leases:
    """The leases of one server: one for its weights, or one for each adapter over them.

    Whole weights remove all adapters, so a lease of these excludes every other.
    """

    _now: Callable[[], float] = field(default=time.monotonic)
    _by_adapter: dict[str, tuple[Lease, float]] = field(factory=dict, init=False)
    """Leases, and when each expires."""

    def hold(self, asked: HoldRequest) -> Lease:
        """Begin or renew a lease; returns the asker's, or the one of another run that excludes it.

        With `take`, other runs lose theirs.

        Raises:
            LLMError: there are too many leases.
        """
        present = self.present()
        others = [each for each in present if _excludes(each, asked.run, asked.adapter)]
        if others and not asked.take:
            return others[0]
        for each in others:
            del self._by_adapter[each.adapter]
        held = self._by_adapter.get(asked.adapter)
        if held is None and len(self._by_adapter) >= _MOST:
            raise LLMError(f"{_MOST} adapters of this server are held")
        lease = held[0] if held else _lease(asked)
        self._by_adapter[asked.adapter] = (lease, self._now() + asked.seconds)
        return lease

    def release(self, run: str, adapter: str) -> None:
        """End a run's lease, if it has one."""
        held = self._by_adapter.get(adapter)
        if held is not None and held[0].run == run:
            del self._by_adapter[adapter]

    def present(self) -> tuple[Lease, ...]:
        """The leases that have not expired."""
        now = self._now()
        self._by_adapter = {
            adapter: held for adapter, held in self._by_adapter.items() if held[1] > now
        }
        return tuple(lease for lease, _ in self._by_adapter.values())

    def check(self, weights: Weights) -> None:
        """Refuse weights of a run while another one holds the server.

        Raises:
            HeldError: it does.
        """
        for each in self.present():
            if _excludes(each, weights.run, weights.adapter):
                raise HeldError(described(each))


def _lease(asked: HoldRequest) -> Lease:
    return Lease(
        run=asked.run, adapter=asked.adapter, host=asked.host, pid=asked.pid, since=time.time()
    )


def _excludes(lease: Lease, run: str, adapter: str) -> bool:
    return lease.run != run and (lease.adapter == adapter or not (lease.adapter and adapter))


def described(lease: Lease) -> str:
    """Who holds a server, for a message."""
    what = f"its adapter '{lease.adapter}'" if lease.adapter else "it"
    where = f" (process {lease.pid} on {lease.host})" if lease.host else ""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(lease.since))
    return f"the run {lease.run}{where} holds {what} since {since}"


@define(kw_only=True)
class Claims:
    """The leases of one run at all its servers."""

    run: str
    adapter: str
    host: str
    pid: int
    seconds: float = EXPIRY_S
    """A lease expires so long after its last renewal."""
    active: bool = False
    """This run gives weights; until then it only looks whether another one does."""
    take: bool = False
    """Take servers from runs that hold them."""

    async def other(self, server: InferenceServer, status: ServerStatus) -> Lease | None:
        """Hold the server, if this run is to; returns the lease of another run that excludes it.

        Raises:
            LLMError: the server can't be reached.
        """
        if self.active and self.run and isinstance(server, Leased):
            lease = await server.hold(self._request())
            return None if lease is None or lease.run == self.run else lease
        found = (each for each in status.leases if _excludes(each, self.run, self.adapter))
        return next(found, None)

    def _request(self) -> HoldRequest:
        return HoldRequest(
            run=self.run,
            adapter=self.adapter,
            host=self.host,
            pid=self.pid,
            seconds=self.seconds,
            take=self.take,
        )

    async def release(self, servers: Mapping[str, InferenceServer]) -> None:
        """End the leases at these servers. One that can't be reached forgets it by itself."""
        if not self.active or not self.run:
            return
        for server in servers.values():
            if isinstance(server, Leased):
                try:
                    await server.release(self.run, self.adapter)
                except LLMError:
                    continue
