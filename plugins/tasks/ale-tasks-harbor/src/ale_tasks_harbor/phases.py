"""Network and user of a task's phases: its agent, its tests, and the agent of the next step.

Source: harbor 0.24, `trial/network_policy.py`.
"""

from collections.abc import Mapping

from attrs import frozen

from ale.protocols import Sandbox
from ale.types import Constraints
from ale_tasks_harbor.capabilities import Reaching, Users, unable
from ale_tasks_harbor.plugin import Phase
from ale_tasks_harbor.values import Values

AGENT_USER = "ALE_AGENT_USER"
"""Variable of a sandbox that names the agent's user, where it is not the container's own."""
READY = ": the agent begins"
"""The command from which on that user is everybody's."""
_MODES = ("public", "no-network", "allowlist")


@frozen(kw_only=True)
class Net:
    """What is reached."""

    mode: str = "public"
    hosts: tuple[str, ...] = ()

    @property
    def constraints(self) -> Constraints:
        """For a sandbox that begins with it."""
        return Constraints(network=self.mode == "public", allowed_hosts=self.hosts)


def baseline(environment: Values) -> Net:
    """That of the environment."""
    offline = environment.flag("allow_internet") is False
    return of(environment, Net(mode="no-network" if offline else "public"))


def of(phase: Values, usual: Net) -> Net:
    """That of a phase; the usual one where the phase names none."""
    if not phase.has("network_mode"):
        if phase.has("allowed_hosts"):
            phase.refuse("allowed_hosts", 'only with network_mode = "allowlist"')
        return usual
    mode, hosts = phase.choice("network_mode", _MODES, usual.mode), phase.texts("allowed_hosts")
    if hosts and mode != "allowlist":
        phase.refuse("allowed_hosts", 'only with network_mode = "allowlist"')
    return Net(mode=mode, hosts=hosts if mode == "allowlist" else ())


def phase(net: Net, user: str | None = None) -> Phase:
    """As the criterion takes it."""
    return Phase(network=net.mode == "public", hosts=net.hosts, user=user)


async def enter(sandbox: Sandbox, wanted: Phase | None) -> Mapping[str, str]:
    """Go on with another network; and with another user, from the command `READY` on.

    Returns:
        The variables by which programs find a way that is not the usual one.

    Raises:
        GradingError: the sandbox can't.
        SandboxError: the sandbox can't just now.
    """
    if wanted is None:
        return {}
    if isinstance(sandbox, Users):
        await sandbox.become(None)
        sandbox.begins_as(wanted.user)
    elif wanted.user is not None:
        raise unable("change its user for a step")
    if not isinstance(sandbox, Reaching):
        raise unable("change its network for a phase")
    return await sandbox.reach(wanted.network, wanted.hosts)
