"""Network of a task's phases: its agent, its tests, and the agent of the next step.

Source: harbor 0.24, `trial/network_policy.py`.
"""

import ipaddress
import re
from collections.abc import Mapping

from ale.protocols import ChangesNetwork, Sandbox
from ale_tasks_harbor.capabilities import unable
from ale_tasks_harbor.options import PhaseNetwork
from ale_tasks_harbor.values import Values

_MODES = ("public", "no-network", "allowlist")


def baseline(environment: Values) -> PhaseNetwork:
    """The network of a task's environment."""
    return of(environment, PhaseNetwork(network=environment.flag("allow_internet") is not False))


def of(phase: Values, usual: PhaseNetwork) -> PhaseNetwork:
    """The network of a phase; the usual one if the phase names none."""
    if not phase.has("network_mode"):
        if phase.has("allowed_hosts"):
            phase.refuse("allowed_hosts", 'only with network_mode = "allowlist"')
        return usual
    mode, hosts = phase.choice("network_mode", _MODES, "public"), phase.texts("allowed_hosts")
    if hosts and mode != "allowlist":
        phase.refuse("allowed_hosts", 'only with network_mode = "allowlist"')
    for problem in filter(None, map(_host_problem, hosts)):
        phase.refuse("allowed_hosts", problem)
    allowed = hosts if mode == "allowlist" else ()
    return PhaseNetwork(network=mode == "public", allowed_hosts=allowed)


def _host_problem(entry: str) -> str | None:
    """Why an entry allows nothing; None if it can allow something."""
    text = entry.strip().strip("[]")
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        if re.fullmatch(r"(\*\.)?[\w.-]+", text):
            return None
        return f"'{entry}' has more than a host's name or address, such as a scheme, port or path"
    if ipaddress.ip_interface(text).ip == network.network_address:
        return None
    return f"'{entry}' is an address in the network {network}; name either"


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
