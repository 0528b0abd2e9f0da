"""What the tests left, kept in the run's directory: their output, logs and artifacts."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from ale.errors import SandboxError
from ale.protocols import Sandbox
from ale.types import ExecResult


async def keep(
    sandbox: Sandbox, result: ExecResult, folder: Path, artifacts: Sequence[str], logs: str
) -> None:
    """Write ``test-stdout.txt``, ``logs/`` and ``artifacts/`` with its ``manifest.json``.

    What can't be had is named in the manifest: it spoils no verdict.
    """
    await asyncio.to_thread(_written, folder, "test-stdout.txt", result.stdout)
    await _had(sandbox, f"{logs}/verifier", folder / "logs")
    entries = []
    for source in (f"{logs}/artifacts", *artifacts):
        target = folder / "artifacts" / source.strip("/")
        fault = await _had(sandbox, source, target)
        if fault is None or source in artifacts:
            entries.append({"source": source, "status": fault or "ok"})
    if artifacts:
        text = json.dumps(entries, indent=2) + "\n"
        await asyncio.to_thread(_written, folder / "artifacts", "manifest.json", text.encode())


def _written(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


async def _had(sandbox: Sandbox, source: str, target: Path) -> str | None:
    """Copy out; why not, where it fails."""
    try:
        await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
        await sandbox.download(source, target)
    except (OSError, SandboxError) as error:
        return f"{type(error).__name__}: {error}"
    return None
