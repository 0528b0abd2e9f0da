"""Tests in a separate container, to which the agent's artifacts are copied.

Source: harbor 0.24, `models/task/verifier_mode.py` and `trial/trial.py`.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ale.errors import GradingError
from ale.protocols import OpensSiblings, Sandbox
from ale.types import SandboxSpec
from ale_tasks_harbor.artifacts import fetched
from ale_tasks_harbor.capabilities import unable
from ale_tasks_harbor.options import Artifact, SeparateVerifier
from ale_tasks_harbor.preparation import STEP_S


@asynccontextmanager
async def opened(
    sandbox: Sandbox, wanted: SeparateVerifier, artifacts: Sequence[Artifact]
) -> AsyncIterator[Sandbox]:
    """A new sandbox with the artifacts of this one at the same paths.

    Artifacts that do not exist are not copied.

    Raises:
        GradingError: it can't be prepared.
        SandboxError: it can't be opened, or this one is gone.
    """
    spec = SandboxSpec(
        image=wanted.image,
        build=wanted.build,
        workdir=wanted.workdir,
        network=wanted.network,
        allowed_hosts=wanted.allowed_hosts,
        env=wanted.env,
        cpus=wanted.cpus,
        memory_mb=wanted.memory_mb,
    )
    if not isinstance(sandbox, OpensSiblings):
        raise unable("open-sibling")
    with tempfile.TemporaryDirectory(prefix="ale-artifacts-") as name:
        copied = await fetched(sandbox, artifacts, Path(name))
        async with sandbox.open_sibling(spec) as other:
            for entry in copied:
                if entry.path is not None:
                    is_folder = await asyncio.to_thread(_opened_up, entry.path)
                    await _put(other, entry.path, entry.artifact.source, is_folder)
            await _set_up(other, wanted)
            yield other


async def _put(other: Sandbox, path: Path, source: str, is_folder: bool) -> None:
    if is_folder:
        # So that files of the image are not mixed with those of the agent.
        await other.exec(["rm", "-rf", "--", source], timeout_s=STEP_S, user="0")
    await other.upload(path, source)


def _opened_up(path: Path) -> bool:
    """Let any user write to a folder, as in Harbor; returns whether it is one."""
    if not path.is_dir():
        return False
    for folder, _, _ in os.walk(path):
        Path(folder).chmod(0o777)
    return True


async def _set_up(other: Sandbox, wanted: SeparateVerifier) -> None:
    for command in wanted.setup:
        result = await other.exec(command, timeout_s=wanted.setup_timeout_s)
        if result.exit_code != 0 or result.timed_out:
            output = (result.stdout + result.stderr)[-800:].decode("utf-8", "replace").strip()
            raise GradingError(
                f"the separate container of the tests could not be prepared: {output}"
            )
