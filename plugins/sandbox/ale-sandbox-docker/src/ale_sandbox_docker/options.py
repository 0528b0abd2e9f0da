"""Options of the sandbox ``docker``, and where its engine listens."""

from collections.abc import Mapping

from attrs import field, frozen

from ale.plugin import doc
from ale_sandboxing.container.options import ContainerOptions

REMEDIES = {
    "missing": "sudo apt-get install docker.io",
    "silent": "sudo systemctl start docker",
    "certificates": "set DOCKER_CERT_PATH to the folder with ca.pem, cert.pem and key.pem",
    "refused": "sudo usermod -aG docker $USER, then log in again",
}


@frozen(kw_only=True)
class DockerOptions(ContainerOptions):
    """One Docker container per task."""

    host: str | None = field(
        default=None,
        metadata=doc("Where the engine listens. Default: DOCKER_HOST or its usual socket."),
    )


def address(options: DockerOptions, environ: Mapping[str, str]) -> str:
    """Where the engine listens."""
    return options.host or environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
