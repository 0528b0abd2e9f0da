"""What can be promised of the service's sandboxes."""

from collections.abc import Sequence

from ale.types import Capabilities
from ale_sandbox_cwsandbox.options import CwSandboxOptions
from ale_sandboxing.remote.capabilities import NOTES

_HOSTS = "allowed hosts: by name, for HTTPS alone"


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
        system_writable=True,
        features=("list-sessions", "open-sibling"),
        notes=(*NOTES, _HOSTS, *notes),
    )
