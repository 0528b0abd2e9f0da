"""What Podman can hold a container to.

From its own description of itself: the one that it has from Docker claims every limit, also where a
normal user's engine has no control groups to enforce it with.
"""

import json
from collections.abc import Mapping
from typing import Any

from ale_sandbox_container.engine import Facts
from ale_sandbox_container.probing import INFO_S, ask

API = "4.0.0"
"""The oldest version of the interface that knows all that is used here."""


def facts_at(address: str) -> Facts:
    """Facts of the engine at an address.

    Raises:
        OSError, ValueError, KeyError, http.client.HTTPException: it does not answer, or not so.
    """
    return facts_of(json.loads(ask(address, f"/v{API}/libpod/info", INFO_S)))


def facts_of(info: Mapping[str, Any]) -> Facts:
    """From what it says of itself."""
    host = info["host"]
    # Those that it may use: a normal user's engine has what was delegated to it, which is none
    # with version 1 of control groups.
    groups = host["cgroupControllers"] or ()
    rootless = host["security"]["rootless"]
    return Facts(
        version=info["version"]["Version"],
        runtime=host["ociRuntime"]["name"],
        cgroup=host["cgroupVersion"],
        holds_memory="memory" in groups,
        holds_processes="pids" in groups,
        holds_cpu="cpu" in groups,
        root_is_root=not rootless,
        seccomp=host["security"]["seccompEnabled"],
        pauses=not rootless or host["cgroupVersion"] == "v2",
    )
