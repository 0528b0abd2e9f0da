"""Copies the artifacts of a task out of its containers.

Source: harbor 0.24, `trial/artifact_handler.py`, for paths and exclusions.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from attrs import frozen

from ale.errors import AleError, SandboxError
from ale.files import write_whole
from ale.protocols import HasServiceContainers, Sandbox, ServiceContainer
from ale_tasks_harbor.capabilities import MAIN, unable
from ale_tasks_harbor.options import Artifact


@frozen(kw_only=True)
class Fetched:
    """One artifact."""

    artifact: Artifact
    path: Path | None
    """Where it was copied to; None if that failed."""
    problem: str | None = None

    @property
    def entry(self) -> dict[str, str]:
        """For the manifest."""
        artifact = self.artifact
        return {
            "source": artifact.source,
            **({} if artifact.destination is None else {"destination": artifact.destination}),
            **({} if artifact.service is None else {"service": artifact.service}),
            "status": self.problem or "ok",
        }


async def keep(sandbox: Sandbox, sources: Sequence[Artifact], folder: Path) -> None:
    """Copy artifacts into a folder, with a ``manifest.json`` that also names those that failed."""
    if not sources:
        return
    entries = [found.entry for found in await fetched(sandbox, sources, folder)]
    text = json.dumps(entries, indent=2) + "\n"
    await asyncio.to_thread(write_whole, folder / "manifest.json", text)


async def fetched(sandbox: Sandbox, sources: Sequence[Artifact], folder: Path) -> Sequence[Fetched]:
    """Copy artifacts, each to its own path below a folder; of two with one path only the first."""
    made: list[Fetched] = []
    for artifact in sources:
        path = folder / (artifact.destination or artifact.source).strip("/")
        if any(found.path == path for found in made):
            made.append(Fetched(artifact=artifact, path=None, problem="skipped: its path is taken"))
            continue
        problem = await _problem_of(sandbox, artifact, path)
        if problem is None and artifact.exclude:
            await asyncio.to_thread(thin_out, path, artifact.exclude)
        made.append(Fetched(artifact=artifact, path=None if problem else path, problem=problem))
    return made


async def _problem_of(sandbox: Sandbox, artifact: Artifact, path: Path) -> str | None:
    if artifact.service in (None, MAIN):
        return await had(sandbox, artifact.source, path)
    try:
        if not isinstance(sandbox, HasServiceContainers):
            raise unable("service-containers")
        return await had(await sandbox.service(str(artifact.service)), artifact.source, path)
    except AleError as error:
        return f"{type(error).__name__}: {error}"


async def had(sandbox: Sandbox | ServiceContainer, source: str, target: Path) -> str | None:
    """Copy a file or folder; returns the error if it fails."""
    try:
        await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
        await sandbox.download(source, target)
    except (OSError, SandboxError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def thin_out(folder: Path, patterns: Sequence[str]) -> None:
    """Remove what ``tar --exclude`` leaves out of a folder. A file is left as it is."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place, name)
            if not is_left_out(path.relative_to(folder).as_posix(), patterns):
                continue
            if name in folders:
                folders.remove(name)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def is_left_out(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches a path, from its beginning or from one of its folders.

    As in GNU tar with ``./name``: a ``*`` matches slashes too.
    """
    parts = [".", *name.split("/")]
    ends = ["/".join(parts[i:]) for i in range(len(parts))]
    return any(fnmatchcase(end, pattern) for end in ends for pattern in patterns)
