"""Registers the sandbox ``docker``. The SDK is imported in `build`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.errors import SandboxError
from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import SandboxBackend
    from ale_sandbox_docker.options import DockerOptions


def build(options: DockerOptions, context: BuildContext) -> SandboxBackend:
    """The backend.

    Raises:
        NotUsableError: the engine does not answer.
    """
    from ale_sandbox_docker.certificates import certificates
    from ale_sandbox_docker.compose import Composer
    from ale_sandbox_docker.engine import DockerEngine
    from ale_sandbox_docker.options import address
    from ale_sandboxing.container.backend import built

    url = address(options, context.environ)
    found = certificates(url, context.environ)
    return built(lambda: DockerEngine(url, context.environ, found), options, context, Composer)


def probe() -> Probe:
    """Does an engine answer?"""
    from ale_sandbox_docker.certificates import certificates
    from ale_sandbox_docker.options import REMEDIES, DockerOptions, address
    from ale_sandboxing.container.probing import probe_engine

    url = address(DockerOptions(), os.environ)
    found = certificates(url, os.environ)
    try:
        tls = None if found is None else found.context()
    except SandboxError as error:
        return Probe(usable=False, reason=str(error), remedy=REMEDIES["certificates"])
    return probe_engine("docker", url, REMEDIES, tls=tls)


@hookimpl
def ale_sandboxes() -> Sequence[Component[DockerOptions, SandboxBackend]]:
    """One sandbox: ``docker``."""
    return [
        Component(
            "docker",
            "ale_sandbox_docker.options:DockerOptions",
            build,
            probe=probe,
            priority=30,
            auto_needs=("image",),
            summary="A Docker container per sandbox: its own files, processes and network.",
        )
    ]
