"""Facts for the manifest of a run: versions, host, and the run's id."""

import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import ale
from ale._registry import Registry


def host_facts() -> dict[str, Any]:
    """The facts about this machine that a manifest has."""
    return {
        "platform": platform.platform(),
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
    }


def versions(registry: Registry) -> dict[str, str]:
    """The version of the core and of each plugin package, by distribution."""
    found = {package.distribution: package.version for package in registry.packages}
    return {"ale-core": ale.__version__, **dict(sorted(found.items()))}


def changed_versions(manifest: Mapping[str, Any], registry: Registry) -> str:
    """Packages whose installed version differs from the manifest; empty if there are none.

    Returns:
        Text such as ``ale-core 0.1.0 -> 0.2.0, ale-credit 1.0 -> 1.1``.
    """
    now = versions(registry)
    return ", ".join(
        f"{name} {before} -> {now[name]}"
        for name, before in manifest.get("versions", {}).items()
        if name in now and now[name] != before
    )


def run_id_for(name: str, clock: float, random_id: str) -> str:
    """A run's id: start time, some random letters, name."""
    stamp = datetime.fromtimestamp(clock, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{random_id[:4]}-{name}"
