"""What Podman can hold a container to.

From its own description of itself: the one that it has from Docker claims every limit, also where a
normal user's engine has no control groups to enforce it with.
"""

import socket
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ale_sandboxing.container.engine import Facts

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
        layered=info["store"]["graphDriverName"] == "overlay" and not rootless,
        pauses=not rootless or host["cgroupVersion"] == "v2",
    )


def reads(address: str, file: Path) -> bool:
    """May an engine read a file of this machine, under the name that it has here?

    Not one that is reached over a network, runs in a virtual machine or in other mounts, or runs as
    a user who may not.
    """
    place = urlsplit(address)
    if place.scheme != "unix":
        return False
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(place.path)
        peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", peer)
    try:
        seen = Path(f"/proc/{pid}/root{file}").samefile(file)
    except OSError:  # it is not there, or the engine's process is not for us to look at
        return False
    ways = [(file, stat.S_IROTH), *((folder, stat.S_IXOTH) for folder in file.parents)]
    return seen and (uid == 0 or all(_may(uid, way, bit) for way, bit in ways))


def _may(uid: int, path: Path, bit: int) -> bool:
    about = path.stat()
    return bool(about.st_mode & (bit << 6 if about.st_uid == uid else bit))
