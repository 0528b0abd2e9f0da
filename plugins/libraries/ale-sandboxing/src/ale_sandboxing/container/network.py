"""What of the network one container reaches, which may change while it runs."""

from collections.abc import Mapping, Sequence

from ale.errors import UnsupportedError
from ale.types import EgressLedger, SandboxSpec, replace
from ale_sandboxing.container.api import Engine
from ale_sandboxing.container.egress import PROXIES, EgressProxy
from ale_sandboxing.container.here import is_here
from ale_sandboxing.container.hosts import AllowedHosts
from ale_sandboxing.container.ledger import Ledger
from ale_sandboxing.container.threads import EngineThreads

_OPEN = "what passed while the sandbox had the whole network"


def narrowed(spec: SandboxSpec, *, cut: bool, hosts: Sequence[str]) -> SandboxSpec:
    """The spec of a sandbox that comes from another, which has no network where that had none.

    Unless the spec itself says which network it is to have.

    Args:
        hosts: those that the other one reached in spite of that.
    """
    if not cut or spec.network is not None:
        return spec
    return replace(spec, network=False, allowed_hosts=spec.allowed_hosts or tuple(hosts))


class Network:
    """The network of one container.

    Args:
        on: what it was started with.
        may: False keeps it without any network, whatever is asked for.
        switches: the engine can take all of its network away.
    """

    def __init__(
        self,
        engine: Engine,
        container: str,
        threads: EngineThreads,
        *,
        on: bool,
        may: bool,
        switches: bool,
    ) -> None:
        self._engine = engine
        self._container = container
        self._threads = threads
        self._on = self._began = on
        self._was_open = on
        self._ledger = Ledger()
        self._hosts: tuple[str, ...] = ()
        self._may = may
        self._switches = switches
        self._gate: EgressProxy | None = None

    async def set(self, network: bool, hosts: Sequence[str] = ()) -> Mapping[str, str]:
        """From now on everything, or these hosts alone, by the proxy on its loopback.

        Returns:
            The variables that name the proxy; none where there is none.

        Raises:
            UnsupportedError: the engine can't change it, or this process may not.
            SandboxError: the container is gone.
        """
        network = network and self._may
        if network != self._on:
            if not network and not self._switches:
                raise UnsupportedError(
                    "networks that lead to several containers can't be taken from one of them"
                )
            await self._threads.call(lambda: self._engine.connect(self._container, network))
            self._on = network
            self._was_open = self._was_open or network
        self._hosts = () if network or not self._may else tuple(hosts)
        await self._through_gate(None if network else self._hosts)
        return {} if network or self._gate is None else PROXIES

    @property
    def cut(self) -> bool:
        """It has no network now."""
        return not self._on

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that it reaches now although it has no network."""
        return self._hosts

    def egress(self) -> EgressLedger:
        """The ledger so far, of what went through the proxy."""
        return self._ledger.so_far(_OPEN if self._was_open else "")

    def of_a_copy(self, spec: SandboxSpec) -> SandboxSpec:
        """The spec of a copy, which reaches what the original reaches now, from its first moment.

        What the original's spec says may have been taken from it since.
        """
        # A copy can be connected again where the original can.
        again = ("change-network",) if self._began else ()
        requires = tuple(dict.fromkeys((*spec.requires, *again)))
        return replace(spec, network=self._on, allowed_hosts=self._hosts, requires=requires)

    async def _through_gate(self, hosts: Sequence[str] | None) -> None:
        if self._gate is not None:
            self._gate.hosts = AllowedHosts(hosts)
            if hosts is not None:
                self._gate.cut()
        elif hosts:
            await self._serve(AllowedHosts(hosts))

    async def _serve(self, hosts: AllowedHosts) -> None:
        self._gate = None
        state = await self._threads.call(lambda: self._engine.state(self._container))
        if not is_here(state.pid, state.id):
            raise UnsupportedError(
                f"an allow-list of hosts needs the engine's own machine; {self._engine.name} runs "
                "on another one, or ale in a container"
            )
        gate = EgressProxy(hosts, ledger=self._ledger)
        await gate.serve(state.pid)
        self._gate = gate

    async def again(self) -> None:
        """The container was started again, which ends the proxy's socket in it."""
        if self._gate is not None:
            self._gate.close()
            await self._serve(self._gate.hosts)

    def close(self) -> None:
        """Close the proxy and the container's connections."""
        if self._gate is not None:
            self._gate.close()
