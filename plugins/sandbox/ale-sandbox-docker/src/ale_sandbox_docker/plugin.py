"""Registers the sandbox ``docker``. The SDK is imported in `build`."""

import os
from collections.abc import Sequence

from ale.plugin import BuildContext, Component, Probe, hookimpl
from ale.protocols import SandboxBackend
from ale_sandbox_docker.options import REMEDIES, DockerOptions, address


def build(options: DockerOptions, context: BuildContext) -> SandboxBackend:
    """The backend.

    Raises:
        NotUsableError: the engine does not answer.
    """
    from ale_sandbox_container.backend import built
    from ale_sandbox_docker.compose import Composer
    from ale_sandbox_docker.engine import DockerEngine

    url = address(options, context.environ)
    return built(lambda: DockerEngine(url, context.environ), options, context, Composer)


def probe() -> Probe:
    """Does an engine answer?"""
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
