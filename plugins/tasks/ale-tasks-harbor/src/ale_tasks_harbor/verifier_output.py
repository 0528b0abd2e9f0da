"""Store the output, logs and rewards of the tests in the run's directory."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from ale.protocols import Sandbox
from ale.types import ExecResult
from ale_tasks_harbor.artifacts import had


async def keep(
    sandbox: Sandbox,
    result: ExecResult,
    folder: Path,
    logs: str,
) -> None:
    """Write ``test-stdout.txt`` and ``logs/``."""
    await asyncio.to_thread(_written, folder, "test-stdout.txt", result.stdout)
    await had(sandbox, f"{logs}/verifier", folder / "logs")


async def rewards(folder: Path, found: Mapping[str, float]) -> None:
    """Write ``rewards.json``: those that count, by name."""
    text = json.dumps(dict(found), indent=2) + "\n"
    await asyncio.to_thread(_written, folder, "rewards.json", text.encode())


def _written(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
