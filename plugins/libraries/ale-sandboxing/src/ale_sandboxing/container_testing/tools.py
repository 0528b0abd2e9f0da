"""What several probes share."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ale.errors import SandboxError
from ale.plugin import BuildContext
from ale.types import SandboxSpec
from ale_sandboxing.container.api import Engine
from ale_sandboxing.container.backend import ContainerBackend
from ale_sandboxing.container.engine import Found
from ale_sandboxing.container.records import LABEL, parse
from ale_sandboxing.container.sandbox import ContainerSandbox

Make = Callable[..., ContainerBackend]
PATIENCE_S = 30.0
TEST = "test"
"""Tag that tells what one test has made from what others have."""


def tags_of(found: Found) -> Mapping[str, str]:
    """Of a container, image or volume."""
    return parse(found.labels[LABEL], found.id).tags


def built(
    plugin: ModuleType, context: BuildContext | None = None, **options: Any
) -> ContainerBackend:
    """A backend of an adapter, given by its module ``plugin``."""
    made = plugin.build(plugin.ale_sandboxes()[0].options(**options), context or BuildContext())
    assert isinstance(made, ContainerBackend)
    return made


def left_of(engine: Engine) -> list[Found]:
    """All containers, images and volumes of sandboxes that an engine has."""
    return [*engine.containers(LABEL), *engine.images(LABEL), *engine.volumes(LABEL)]


@contextlib.asynccontextmanager
async def opened(backend: ContainerBackend, **spec: object) -> AsyncIterator[ContainerSandbox]:
    """A sandbox; its backend is closed after it."""
    try:
        async with backend.open(SandboxSpec(**spec)) as sandbox:  # type: ignore[arg-type]
            yield sandbox
    finally:
        await backend.aclose()


async def error_of(work: Awaitable[object]) -> str:
    """What the SandboxError says that it raises."""
    with pytest.raises(SandboxError) as said:
        await asyncio.wait_for(work, PATIENCE_S)
    return str(said.value)


async def refusal(backend: ContainerBackend, **spec: object) -> str:
    """Why it opens no such sandbox; it is closed after that."""
    with pytest.raises(SandboxError) as said:
        async with opened(backend, **spec):
            pass
    return str(said.value)


def folder_of(parent: Path, dockerfile: str) -> str:
    """A new folder with a Dockerfile."""
    folder = parent / "task"
    folder.mkdir()
    (folder / "Dockerfile").write_text(dockerfile)
    return str(folder)


async def out(sandbox: ContainerSandbox, command: str, **options: object) -> str:
    """Stdout of a command that must succeed."""
    result = await sandbox.exec(command, timeout_s=PATIENCE_S, **options)  # type: ignore[arg-type]
    assert result.exit_code == 0, (command, result)
    return result.stdout.decode().strip()
