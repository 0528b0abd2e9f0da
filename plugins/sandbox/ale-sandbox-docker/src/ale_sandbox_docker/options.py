"""Options of the sandbox ``docker``, and where its engine listens."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from ale.plugin import doc
from ale_sandbox_container.address import EngineAddress
from ale_sandbox_container.options import ContainerOptions

REMEDIES = {
    "missing": "sudo apt-get install docker.io",
    "silent": "sudo systemctl start docker",
    "refused": "sudo usermod -aG docker $USER, then log in again",
    "remote": "use an engine of this machine: unset DOCKER_HOST, or sandbox.type podman",
}


@frozen(kw_only=True)
class DockerOptions(ContainerOptions):
    """One Docker container per task."""

    host: str | None = field(
        default=None,
        metadata=doc("Where the engine listens. Default: DOCKER_HOST or its usual socket."),
    )


def address(options: DockerOptions, environ: Mapping[str, str]) -> EngineAddress:
    """Where the engine listens."""
    url = options.host or environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    return EngineAddress(name="docker", url=url, create="/containers/create", using=_using)


def _using(folder: str) -> Mapping[str, Any]:
    # Mounts are looked at before the image, and there is none of this name.
    mount = {"Type": "bind", "Source": folder, "Target": "/mnt"}
    return {"Image": "ale-no-such-image", "HostConfig": {"Mounts": [mount]}}
