"""The fixtures that the probes need, for an adapter's ``conftest.py`` to register.

They build on two of its own: ``plugin``, its module ``plugin``; and ``image``, an image's name.
"""

import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ale.plugin import BuildContext
from ale.types import SandboxSpec
from ale_sandbox_container.backend import ContainerBackend
from ale_sandbox_container.records import LABEL
from ale_sandbox_container.sandbox import ContainerSandbox
from ale_sandbox_container.sealed import SealedShells
from ale_sandbox_container.testing.tools import TEST, Make, tags_of
from ale_sandbox_container.testing_images import CannotMakeError, provide


@functools.cache
def why_not(plugin: ModuleType, image: str) -> str | None:
    """Why there can be no tests on this engine with this image; None where there can."""
    offered = plugin.ale_sandboxes()[0]
    found = offered.probe()
    if not found.usable:
        return f"{offered.name}: {found.reason}"
    try:
        provide([offered.name], image)
    except CannotMakeError as error:
        return f"no {image} for {offered.name}: {error}"
    return None


class KeptShells(SealedShells):
    """Volumes that outlive a backend: making one takes as long as a test."""

    def remove(self) -> None:
        """Nothing; the session's end does it."""


def shells(plugin: ModuleType, host: str | None = None) -> Iterator[SealedShells]:
    """One set for the session, at the usual engine or another."""
    backend = plugin.build(plugin.ale_sandboxes()[0].options(host=host), BuildContext())
    assert isinstance(backend, ContainerBackend)
    kept = KeptShells(
        backend._engine,
        backend._threads,
        backend._context.new_id,
        lambda id: backend._record(id, "shell").labels,
    )
    yield kept
    SealedShells.remove(kept)


def make(
    plugin: ModuleType,
    image: str,
    shells: SealedShells,
    tmp_path: Path,
    host: str | None = None,
) -> Make:
    """Builds a backend with these options, and with `context` for fields of the BuildContext."""

    def make_backend(*, context: dict[str, Any] | None = None, **options: Any) -> ContainerBackend:
        about = {"tags": {TEST: str(tmp_path)}, "run_directory": tmp_path / "run"}
        made = plugin.build(
            plugin.ale_sandboxes()[0].options(**{"image": image, "host": host, **options}),
            BuildContext(**{**about, **(context or {})}),
        )
        assert isinstance(made, ContainerBackend)
        made._shells = shells
        return made

    return make_backend


def host(plugin: ModuleType, image: str, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """What a host process needs to build the same backend: options, and its tags."""
    return plugin.__name__, {"options": {"image": image}, "tags": {TEST: str(tmp_path)}}


async def backend(make: Make) -> AsyncIterator[ContainerBackend]:
    """One with its usual options, closed at the end."""
    made = make()
    yield made
    await _close(made)


async def small_limits(make: Make) -> AsyncIterator[ContainerBackend]:
    """One whose limits are soon reached."""
    made = make(memory_mb=256, processes=64, file_size_mb=8, cpu_s=1)
    yield made
    await _close(made)


async def _close(backend: ContainerBackend) -> None:
    """Its snapshots would stay for the next `prune`, since they may be wanted after a run."""
    await backend.aclose()
    for image in backend._engine.images(LABEL):
        if tags_of(image) == backend._context.tags:
            backend._engine.remove_image(image.id)


async def box(backend: ContainerBackend) -> AsyncIterator[ContainerSandbox]:
    """An open sandbox."""
    async with backend.open(SandboxSpec()) as sandbox:
        yield sandbox
