"""The samples, a sandbox, and a quick way to grade."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import Score, Task
from ale_tasks_swe.options import SweOptions, SweTestsOptions
from ale_tasks_swe.samples import write_samples
from ale_tasks_swe.source import swe
from ale_tasks_swe.swe_tests import SweTests

Grade = Callable[..., Awaitable[Score]]


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples, written once."""
    folder = tmp_path_factory.mktemp("samples") / "made"
    write_samples(folder)
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def tasks(samples: Path, cache: Path) -> Mapping[str, Task]:
    """The tasks of the samples by the name of their package."""
    options = SweOptions(
        path=samples / "tasks.jsonl", mirrors=samples / "repositories", cache=cache
    )
    return {task.id.removeprefix("samples__")[:-2]: task for task in swe(options).load()}


@pytest_asyncio.fixture
async def sandbox(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FolderSandbox]:
    """With a place of its own for temporary files, as the real backends have."""
    sandbox = FolderSandbox(env={"TMPDIR": str(tmp_path_factory.mktemp("temporary"))})
    yield sandbox
    await sandbox.close()


def criterion_of(task: Task, **changed: Any) -> SweTests:
    """The criterion of a task, with this Python."""
    given = {**task.criteria[0].options, "python": sys.executable, **changed}
    lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    return SweTests(SweTestsOptions(**{**given, **lists, "repository": Path(given["repository"])}))


async def set_up(task: Task, sandbox: FolderSandbox, *, solved: bool = False) -> None:
    """Put the repository in, and apply the reference solution where asked for."""
    assert task.files is not None
    await sandbox.upload(Path(task.files), ".")
    for command in (task.solution or ()) if solved else ():
        assert (await sandbox.exec(command)).exit_code == 0


@pytest.fixture
def grade(sandbox: FolderSandbox) -> Grade:
    async def grade(task: Task, **changed: Any) -> Score:
        return await criterion_of(task, **changed).grade(task, builders.trajectory(), sandbox)

    return grade
