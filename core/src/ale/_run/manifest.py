"""What a run says about itself, so that it can be understood and run again."""

import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ale
from ale._config import RunConfig
from ale._registry import Registry
from ale._run.parts import Parts


def describe_run(
    config: RunConfig, registry: Registry, parts: Parts, *, run_id: str, clock: float, n_tasks: int
) -> dict[str, Any]:
    """The manifest: config, versions, seed, sandbox and host facts. No secret is among them."""
    return {
        "run_id": run_id,
        "created": datetime.fromtimestamp(clock, UTC).isoformat(timespec="seconds"),
        "config": config.resolved,
        "seed": config.run.seed,
        "n_tasks": n_tasks,
        "versions": versions(registry),
        "sandbox": {"type": config.sandbox.name, "capabilities": parts.backend.capabilities},
        "host": {
            "platform": platform.platform(),
            "python": sys.version.split()[0],
            "cpus": os.cpu_count(),
        },
    }


def versions(registry: Registry) -> dict[str, str]:
    """Of the core and of every plugin package."""
    found = {package.distribution: package.version for package in registry.packages}
    return {"ale-core": ale.__version__, **dict(sorted(found.items()))}


def run_id_for(name: str, clock: float, taken: Sequence[Path]) -> str:
    """A name for a run: when and what, with a number where that is taken."""
    stamp = datetime.fromtimestamp(clock, UTC).strftime("%Y%m%d-%H%M%S")
    base = f"{stamp}-{name}"
    names = {path.name for path in taken}
    return next(
        candidate
        for number in range(len(names) + 1)
        if (candidate := base if number == 0 else f"{base}-{number + 1}") not in names
    )
