"""What can be promised of the service's sandboxes."""

from collections.abc import Sequence

from ale.types import Capabilities
from ale_sandbox_cwsandbox.options import CwSandboxOptions

_TRIED = (
    "trust: what isolates sandboxes is the service's; it was tried against a fake of the service "
    "only"
)
_TIMEOUTS = (
    "timeouts: a process that leaves its process group and clears its environment outlives the "
    "timeout of its command; it does not outlive end_processes or the sandbox"
)
_SAME_USER = (
    "same user: a command may kill what runs later commands of the sandbox, or forge its results"
)
_HOSTS = "allowed hosts: by name, for HTTPS alone"
_MACHINES = (
    "prune: sandboxes that another machine has left are not removed; the service ends them after "
    "lifetime_s"
)


def capabilities_of(options: CwSandboxOptions, notes: Sequence[str]) -> Capabilities:
    """Capabilities, with their gaps in `notes`.

    Args:
        notes: about the key.
    """
    return Capabilities(
        isolation="container",
        network_isolation=options.network is not True,
        filesystem_isolation=True,
        process_isolation=True,
        fork="replay",
        snapshot=False,
        images=True,
        limits={
            "cpu": "none" if options.cpus is None else "best-effort",
            "memory": "none" if options.memory_mb is None else "best-effort",
            "processes": "none",
            "file_size": "none",
            "disk": "none",
        },
        features=("list-sessions", "open-sibling"),
        notes=(_TRIED, _TIMEOUTS, _SAME_USER, _HOSTS, _MACHINES, *notes),
    )
