"""What the tests left, kept in the run's directory: their output, logs and artifacts."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from ale.errors import AleError, SandboxError
from ale.protocols import Sandbox
from ale.types import ExecResult
from ale_tasks_harbor.beyond import Service, Several, unable
from ale_tasks_harbor.plugin import Artifact
from ale_tasks_harbor.stage import Verdict

MAIN = "main"
"""The agent's own service."""


@frozen(kw_only=True)
class Fetched:
    """One artifact."""

    artifact: Artifact
    path: Path | None
    """Where it is now; None where it could not be had."""
    fault: str | None = None


async def keep(
    sandbox: Sandbox,
    result: ExecResult,
    verdict: Verdict,
    folder: Path,
    logs: str,
) -> None:
    """Write ``test-stdout.txt`` and ``logs/``."""
    await asyncio.to_thread(_written, folder, "test-stdout.txt", result.stdout)
    for name, data in (("reward.json", verdict.as_json), ("reward.txt", verdict.as_text)):
        if data is not None and not verdict.has_more:
            await asyncio.to_thread(_written, folder / "logs", name, data)
    if verdict.has_more:
        await _had(sandbox, f"{logs}/verifier", folder / "logs")


async def artifacts(sandbox: Sandbox, sources: Sequence[Artifact], folder: Path) -> None:
    """Write ``artifacts/`` and its ``manifest.json``.

    What can't be had is named in the manifest: it spoils no verdict.
    """
    if not sources:
        return
    entries = [
        {
            "source": found.artifact.source,
            **({} if found.artifact.service is None else {"service": found.artifact.service}),
            "status": found.fault or "ok",
        }
        for found in await fetched(sandbox, sources, folder / "artifacts")
    ]
    text = json.dumps(entries, indent=2) + "\n"
    await asyncio.to_thread(_written, folder / "artifacts", "manifest.json", text.encode())


async def fetched(sandbox: Sandbox, sources: Sequence[Artifact], folder: Path) -> Sequence[Fetched]:
    """Copy artifacts out, each to its own path below a folder; of two at one path the first."""
    made: list[Fetched] = []
    for artifact in sources:
        path = folder / artifact.source.strip("/")
        if any(found.path == path for found in made):
            made.append(Fetched(artifact=artifact, path=None, fault="skipped: its path is taken"))
            continue
        fault = await _fault_of(sandbox, artifact, path)
        made.append(Fetched(artifact=artifact, path=None if fault else path, fault=fault))
    return made


async def _fault_of(sandbox: Sandbox, artifact: Artifact, path: Path) -> str | None:
    if artifact.service in (None, MAIN):
        return await _had(sandbox, artifact.source, path)
    try:
        if not isinstance(sandbox, Several):
            raise unable("look into other services")
        return await _had(await sandbox.service(str(artifact.service)), artifact.source, path)
    except AleError as error:
        return f"{type(error).__name__}: {error}"


async def rewards(folder: Path, found: Mapping[str, float]) -> None:
    """Write ``rewards.json``: those that count, by name."""
    text = json.dumps(dict(found), indent=2) + "\n"
    await asyncio.to_thread(_written, folder, "rewards.json", text.encode())


def _written(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


async def _had(sandbox: Sandbox | Service, source: str, target: Path) -> str | None:
    """Copy out; why not, where it fails."""
    try:
        await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
        await sandbox.download(source, target)
    except (OSError, SandboxError) as error:
        return f"{type(error).__name__}: {error}"
    return None
