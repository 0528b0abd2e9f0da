"""Registers the sandbox ``podman``. The SDK is imported in `build`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ale.plugin import BuildContext, Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import SandboxBackend
    from ale_sandbox_podman.options import PodmanOptions


def build(options: PodmanOptions, context: BuildContext) -> SandboxBackend:
    """The backend.

    Raises:
        NotUsableError: the engine does not answer.
    """
    from ale_sandbox_podman.engine import PodmanEngine
    from ale_sandbox_podman.options import address
    from ale_sandboxing.container.backend import built

    url = address(options, context.environ)
    # Without docker compose, whose version 1 attaches to what it only makes: Podman then makes the
    # first process of such a container at once, before its supervisor is there.
    return built(lambda: PodmanEngine(url), options, context)


def probe() -> Probe:
    """Does the engine's service answer?"""
    from ale_sandbox_podman.facts import ABOUT, facts_of
    from ale_sandbox_podman.options import REMEDIES, PodmanOptions, address
    from ale_sandboxing.container.probing import probe_engine

    url = address(PodmanOptions(), os.environ)
    return probe_engine("podman", url, REMEDIES, about=ABOUT, read=facts_of)


@hookimpl
def ale_sandboxes() -> Sequence[Component[PodmanOptions, SandboxBackend]]:
    """One sandbox: ``podman``."""
    return [
        Component(
            "podman",
            "ale_sandbox_podman.options:PodmanOptions",
            build,
            probe=probe,
            priority=20,
            auto_needs=("image",),
            summary="A Podman container per sandbox: its own files, processes and network.",
        )
    ]
