"""Offers the sandbox ``docker``. The SDK is imported in `build`."""

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from ale.plugin import BuildContext, Component, Probe, doc, hookimpl
from ale.protocols import SandboxBackend
from ale_sandbox_container.options import ContainerOptions

REMEDIES = {
    "missing": "sudo apt-get install docker.io",
    "silent": "sudo systemctl start docker",
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


def build(options: DockerOptions, context: BuildContext) -> SandboxBackend:
    """The backend.

    Raises:
        NotUsableError: the engine does not answer.
    """
    from ale_sandbox_container.backend import built
    from ale_sandbox_docker.engine import DockerEngine

    where = address(options, context.environ)
    return built("docker", lambda: DockerEngine(where), options, context)


def probe() -> Probe:
    """Does an engine answer?"""
    import os

    from ale_sandbox_container.probing import probe_engine

    return probe_engine("docker", address(DockerOptions(), os.environ), REMEDIES)


@hookimpl
def ale_sandboxes() -> Sequence[Component[DockerOptions, SandboxBackend]]:
    """One sandbox: ``docker``."""
    return [
        Component(
            "docker",
            DockerOptions,
            build,
            probe=probe,
            priority=30,
            auto_needs=("image",),
            summary="A Docker container per sandbox: its own files, processes and network.",
        )
    ]
