"""Network of a task's phases: its agent, its tests, and the agent of the next step.

Source: harbor 0.24, `trial/network_policy.py`.
"""

from collections.abc import Mapping

from attrs import frozen

from ale.protocols import ChangesNetwork, Sandbox
from ale.types import Constraints
from ale_tasks_harbor.capabilities import unable
from ale_tasks_harbor.options import PhaseNetwork
from ale_tasks_harbor.values import Values

_MODES = ("public", "no-network", "allowlist")


@frozen(kw_only=True)
class Net:
    """Which hosts can be reached."""

    mode: str = "public"
    hosts: tuple[str, ...] = ()

    @property
    def constraints(self) -> Constraints:
        """The same, for opening a sandbox."""
        return Constraints(network=self.mode == "public", allowed_hosts=self.hosts)


def baseline(environment: Values) -> Net:
    """The network of a task's environment."""
    offline = environment.flag("allow_internet") is False
    return of(environment, Net(mode="no-network" if offline else "public"))


def of(phase: Values, usual: Net) -> Net:
    """The network of a phase; the usual one if the phase names none."""
    if not phase.has("network_mode"):
        if phase.has("allowed_hosts"):
            phase.refuse("allowed_hosts", 'only with network_mode = "allowlist"')
        return usual
    mode, hosts = phase.choice("network_mode", _MODES, usual.mode), phase.texts("allowed_hosts")
    if hosts and mode != "allowlist":
        phase.refuse("allowed_hosts", 'only with network_mode = "allowlist"')
    return Net(mode=mode, hosts=hosts if mode == "allowlist" else ())


def phase(net: Net) -> PhaseNetwork:
    """The same, as an option of the criterion."""
    return PhaseNetwork(network=net.mode == "public", allowed_hosts=net.hosts)


async def enter(sandbox: Sandbox, wanted: PhaseNetwork | None) -> Mapping[str, str]:
    """Change the network of a sandbox; None leaves it as it is.

    Returns:
        Environment variables with which programs find a proxy.

    Raises:
        GradingError: the sandbox lacks the feature.
        SandboxError: the change failed.
    """
    if wanted is None:
        return {}
    if not isinstance(sandbox, ChangesNetwork):
        raise unable("change-network")
    return await sandbox.set_network(wanted.network, wanted.allowed_hosts)
