"""The launcher ``slurm``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ale.plugin import Component, Probe, hookimpl

if TYPE_CHECKING:
    from ale.protocols import Launcher


def probe() -> Probe:
    """Whether jobs can be submitted from here."""
    import shutil

    found = shutil.which("sbatch")
    if found is None:
        return Probe(usable=False, reason="there is no sbatch", remedy="use a login node")
    return Probe(usable=True, reason=found)


@hookimpl
def ale_launchers() -> Sequence[Component[Any, Launcher]]:
    """Register ``slurm``."""
    return [
        Component(
            "slurm",
            "ale_slurm.options:SlurmOptions",
            "ale_slurm.launcher:SlurmLauncher",
            summary="Submits everything as one Slurm job.",
            probe=probe,
        )
    ]
