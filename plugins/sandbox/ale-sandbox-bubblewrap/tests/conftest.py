"""Backends whose folders are the tests' own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from attrs import evolve

from ale.plugin import BuildContext
from ale.protocols import Sandbox, SandboxBackend
from ale.types import SandboxSpec
from ale_sandbox_bubblewrap import facts
from ale_sandbox_bubblewrap.options import BubblewrapOptions
from ale_sandbox_bubblewrap.plugin import build

Build = Callable[..., SandboxBackend]


@pytest.fixture(scope="session")
def found() -> facts.Facts:
    """What this machine can do; skips where there can't be a sandbox at all."""
    found = facts.find()
    if found.missing is not None:
        pytest.skip(f"bubblewrap: {found.missing}")
    return found


def build_in(folder: Path, found: facts.Facts, **options: Any) -> SandboxBackend:
    """Build a backend in a folder.

    Args:
        options: ``changed`` (other facts) and ``context`` (fields of the BuildContext) apart, those
            of the sandbox.
    """
    changed, fields = options.pop("changed", {}), options.pop("context", {})
    options.setdefault("writable_system", True)  # more layers than without
    context = BuildContext(environ={"XDG_RUNTIME_DIR": str(folder)}, **fields)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "find", lambda _: evolve(found, **changed))
        return build(BubblewrapOptions(root=folder, **options), context)


@pytest.fixture(scope="session")
def shared(found: facts.Facts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Build]:
    """Backends that are kept, one for each set of arguments: a new one takes its time."""
    made: dict[str, SandboxBackend] = {}
    folder = tmp_path_factory.mktemp("shared")

    def get(**arguments: Any) -> SandboxBackend:
        key = repr(arguments)
        if key not in made:
            made[key] = build_in(folder, found, **arguments)
        return made[key]

    yield get
    for backend in made.values():
        asyncio.run(backend.aclose())


@pytest.fixture
def backend(shared: Build) -> SandboxBackend:
    return shared()


@pytest_asyncio.fixture
async def box(backend: SandboxBackend) -> AsyncIterator[Sandbox]:
    async with backend.open(SandboxSpec()) as sandbox:
        yield sandbox


@pytest_asyncio.fixture
async def make(found: facts.Facts, tmp_path: Path) -> AsyncIterator[Build]:
    """Build a backend of the test's own."""
    made: list[SandboxBackend] = []

    def make_one(**arguments: Any) -> SandboxBackend:
        made.append(build_in(tmp_path, found, **arguments))
        return made[-1]

    yield make_one
    for backend in made:
        await backend.aclose()
