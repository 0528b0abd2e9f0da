"""Options of the sandbox ``podman``, and where its engine listens."""

import os
from collections.abc import Mapping
from pathlib import Path

from attrs import field, frozen

from ale.plugin import doc
from ale_sandboxing.container.options import ContainerOptions

REMEDIES = {
    "missing": "sudo apt-get install podman",
    "silent": "systemctl --user start podman.socket (as root: systemctl start podman.socket)",
    "refused": "systemctl --user start podman.socket, and unset CONTAINER_HOST",
}


@frozen(kw_only=True)
class PodmanOptions(ContainerOptions):
    """One Podman container per task."""

    host: str | None = field(
        default=None,
        metadata=doc(
            "Where the engine's service listens. Default: CONTAINER_HOST, else this user's socket."
        ),
    )


def address(options: PodmanOptions, environ: Mapping[str, str]) -> str:
    """Where the engine's service listens."""
    return options.host or environ.get("CONTAINER_HOST") or _usual(environ)


def _usual(environ: Mapping[str, str]) -> str:
    runtime = environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")
    folder = Path("/run") if os.geteuid() == 0 else Path(runtime)
    return f"unix://{folder}/podman/podman.sock"
