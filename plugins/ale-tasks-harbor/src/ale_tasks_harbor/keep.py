"""What the tests left, kept in the run's directory: their output, logs and artifacts."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ale.errors import SandboxError
from ale.protocols import Sandbox
from ale.types import ExecResult
from ale_tasks_harbor.stage import Verdict


async def keep(
    sandbox: Sandbox,
    result: ExecResult,
    verdict: Verdict,
    folder: Path,
    artifacts: Sequence[str],
    logs: str,
) -> None:
    """Write ``test-stdout.txt``, ``logs/`` and ``artifacts/`` with its ``manifest.json``.

    What can't be had is named in the manifest: it spoils no verdict.
    """
    await asyncio.to_thread(_written, folder, "test-stdout.txt", result.stdout)
    for name, data in (("reward.json", verdict.as_json), ("reward.txt", verdict.as_text)):
        if data is not None and not verdict.has_more:
            await asyncio.to_thread(_written, folder / "logs", name, data)
    if verdict.has_more:
        await _had(sandbox, f"{logs}/verifier", folder / "logs")
    sources = [*([f"{logs}/artifacts"] if verdict.has_artifacts else []), *artifacts]
    if not sources:
        return
    entries = []
    for source in sources:
        fault = await _had(sandbox, source, folder / "artifacts" / source.strip("/"))
        entries.append({"source": source, "status": fault or "ok"})
    text = json.dumps(entries, indent=2) + "\n"
    await asyncio.to_thread(_written, folder / "artifacts", "manifest.json", text.encode())


async def rewards(folder: Path, found: Mapping[str, float]) -> None:
    """Write ``rewards.json``: those that count, by name."""
    text = json.dumps(dict(found), indent=2) + "\n"
    await asyncio.to_thread(_written, folder, "rewards.json", text.encode())


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
