"""The fixtures that the tests need. A ``conftest.py`` imports all of them.

It adds one of its own: ``plugin``, the module ``plugin`` of the adapter. Which image is started a
class of tests says by its attribute ``container_image``.
"""

import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from ale.plugin import BuildContext
from ale.types import SandboxSpec
from ale_sandboxing.container.backend import ContainerBackend
from ale_sandboxing.container.records import LABEL
from ale_sandboxing.container.sandbox import ContainerSandbox
from ale_sandboxing.container.sealed import SealedShells
from ale_sandboxing.container_testing.images import CannotMakeError, provide
from ale_sandboxing.container_testing.tools import TEST, Make, built, tags_of


@functools.cache
def why_not(plugin: ModuleType, image: str) -> str | None:
    """Why there can be no tests on this engine with this image; None where there can."""
    if reason := unusable(plugin):
        return reason
    name = plugin.ale_sandboxes()[0].name
    try:
        provide([name], image)
    except CannotMakeError as error:
        return f"no {image} for {name}: {error}"
    return None


@functools.cache
def unusable(plugin: ModuleType) -> str | None:
    """Why this engine can't be used; None where it can."""
    offered = plugin.ale_sandboxes()[0]
    found = offered.probe()
    return None if found.usable else f"{offered.name}: {found.reason}"


@pytest.fixture
def image(plugin: ModuleType, request: pytest.FixtureRequest) -> str:
    """Name of the image that `make` starts; skips where it or its engine can't be had."""
    name: str = request.cls.container_image
    skip_without(plugin, name)
    return name


def skip_without(plugin: ModuleType, image: str) -> None:
    """Skip the test where this engine or its image can't be had."""
    if reason := why_not(plugin, image):
        pytest.skip(reason)


class KeptShells(SealedShells):
    """Volumes that outlive a backend: making one takes as long as a test."""

    def remove(self) -> None:
        """Nothing; the session's end does it."""


def shells_at(plugin: ModuleType, host: str | None = None) -> Iterator[SealedShells]:
    """One set of volumes at the usual engine or another, removed at the end."""
    backend = built(plugin, host=host)
    kept = KeptShells(
        backend._engine,
        backend._threads,
        backend._context.new_id,
        lambda id: backend._record(id, "shell").labels,
    )
    yield kept
    SealedShells.remove(kept)


@pytest.fixture(scope="session")
def shells(plugin: ModuleType) -> Iterator[SealedShells]:
    """One set for the session. It is made before `image` can skip a test, so it skips too."""
    if reason := unusable(plugin):
        pytest.skip(reason)
    yield from shells_at(plugin)


def maker(
    plugin: ModuleType, image: str, shells: SealedShells, folder: Path, host: str | None = None
) -> Make:
    """What `make` is, at the usual engine or another."""

    def make_backend(*, context: dict[str, Any] | None = None, **options: Any) -> ContainerBackend:
        about = {"tags": {TEST: str(folder)}, "run_directory": folder / "run"}
        given = BuildContext(**{**about, **(context or {})})
        made = built(plugin, given, **{"image": image, "host": host, **options})
        made._shells = shells
        return made

    return make_backend


@pytest.fixture
def make(plugin: ModuleType, image: str, shells: SealedShells, tmp_path: Path) -> Make:
    """Builds a backend with these options, and with `context` for fields of the BuildContext."""
    return maker(plugin, image, shells, tmp_path)


@pytest.fixture
def host(plugin: ModuleType, image: str, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    """What a host process needs to build the same backend: options, and its tags."""
    return plugin.__name__, {"options": {"image": image}, "tags": {TEST: str(tmp_path)}}


@pytest_asyncio.fixture
async def backend(make: Make) -> AsyncIterator[ContainerBackend]:
    """One with its usual options, closed at the end."""
    made = make()
    yield made
    await _close(made)


@pytest_asyncio.fixture
async def small_limits(make: Make) -> AsyncIterator[ContainerBackend]:
    """One whose limits are soon reached."""
    made = make(memory_mb=256, processes=64, file_size_mb=8, cpu_s=1)
    yield made
    await _close(made)


@pytest_asyncio.fixture
async def box(backend: ContainerBackend) -> AsyncIterator[ContainerSandbox]:
    """An open sandbox."""
    async with backend.open(SandboxSpec()) as sandbox:
        yield sandbox


class OfItsKit:
    """Gives these fixtures to the contract kit of all sandboxes; the first of two bases."""

    @pytest.fixture
    def backend(self, backend: ContainerBackend) -> ContainerBackend:
        """As above."""
        return backend

    @pytest.fixture
    def small_limits(self, small_limits: ContainerBackend) -> ContainerBackend:
        """As above."""
        return small_limits


async def _close(backend: ContainerBackend) -> None:
    """Its snapshots would stay for the next `prune`, since they may be wanted after a run."""
    await backend.aclose()
    for image in backend._engine.images(LABEL):
        if tags_of(image) == backend._context.tags:
            backend._engine.remove_image(image.id)
