"""Offers the sandbox ``podman``. The SDK is imported in `build`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from ale.plugin import BuildContext, Component, Probe, doc, hookimpl
from ale.protocols import SandboxBackend
from ale_sandbox_container.options import ContainerOptions

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
    import os

    given = options.host or environ.get("CONTAINER_HOST")
    if given:
        return given
    runtime = environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")
    folder = Path("/run") if os.geteuid() == 0 else Path(runtime)
    return f"unix://{folder}/podman/podman.sock"


def build(options: PodmanOptions, context: BuildContext) -> SandboxBackend:
    """The backend.

    Raises:
        NotUsableError: the engine does not answer.
    """
    from ale_sandbox_container.backend import built
    from ale_sandbox_podman.engine import PodmanEngine

    where = address(options, context.environ)
    return built("podman", lambda: PodmanEngine(where), options, context)


def probe() -> Probe:
    """Does the engine's service answer?"""
    import os

    from ale_sandbox_container.probing import probe_engine

    return probe_engine("podman", address(PodmanOptions(), os.environ), REMEDIES)


@hookimpl
def ale_sandboxes() -> Sequence[Component[PodmanOptions, SandboxBackend]]:
    """One sandbox: ``podman``."""
    return [
        Component(
            "podman",
            PodmanOptions,
            build,
            probe=probe,
            priority=20,
            auto_needs=("image",),
            summary="A Podman container per sandbox: its own files, processes and network.",
        )
    ]
