"""What a run says about itself, so that it can be understood and run again."""

import os
import platform
import sys
from datetime import UTC, datetime
from typing import Any

import ale
from ale._config import RunConfig
from ale._registry import Registry
from ale._run.parts import Parts, Tasks


def describe_run(
    config: RunConfig, registry: Registry, parts: Parts, *, run_id: str, clock: float, tasks: Tasks
) -> dict[str, Any]:
    """The manifest: config, versions, seed, sandbox and host facts. No secret is among them."""
    return {
        "run_id": run_id,
        "created": datetime.fromtimestamp(clock, UTC).isoformat(timespec="seconds"),
        "config": config.resolved,
        "environ_source": config.environ_source,
        "seed": config.run.seed,
        "n_tasks": len(tasks["train"]),
        "n_evaluation_tasks": len(tasks["evaluation"]),
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


def run_id_for(name: str, clock: float, random_id: str) -> str:
    """A name for a run: when, a few letters for those of the same second, and what."""
    stamp = datetime.fromtimestamp(clock, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{random_id[:4]}-{name}"
