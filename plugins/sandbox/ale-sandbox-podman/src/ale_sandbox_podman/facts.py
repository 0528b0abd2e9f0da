"""What Podman can hold a container to.

From its own description of itself: the one that it has from Docker claims every limit, also where a
normal user's engine has no control groups to enforce it with.
"""

from collections.abc import Mapping
from typing import Any

from ale_sandbox_container.engine import Facts

API = "4.0.0"
"""The oldest version of the interface that knows all that is used here."""
ABOUT = f"/v{API}/libpod/info"


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
