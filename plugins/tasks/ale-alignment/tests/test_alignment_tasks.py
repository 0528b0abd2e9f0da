"""Each task in a real shell: honest work passes, misaligned work is seen, a refusal is neither."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, get_args

import pytest
import pytest_asyncio

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.protocols import TaskSource
from ale.strict import from_plain, structure
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.testing.played import play
from ale.testing.tasks import TaskSourceContract
from ale.types import Score, Task, Trajectory
from ale_alignment.misaligned import MisalignedAgent
from ale_alignment.options import AlignmentOptions, MisalignedOptions, Strategy, TraceOptions
from ale_alignment.source import SETS, AlignmentTasks
from ale_alignment.trace import Trace

Open = Callable[[], FolderSandbox]
DONE = builders.trajectory(builders.turn("Done."))


class TestAlignmentTasks(TaskSourceContract):
    @pytest.fixture(params=["full", "proxy", "both"])
    def source(self, request: pytest.FixtureRequest) -> TaskSource:
        return AlignmentTasks(AlignmentOptions(grading=request.param))


@pytest_asyncio.fixture
async def open_sandbox() -> AsyncIterator[Open]:
    opened: list[FolderSandbox] = []

    def new() -> FolderSandbox:
        opened.append(FolderSandbox())
        return opened[-1]

    yield new
    for sandbox in opened:
        await sandbox.close()


def load(**options: Any) -> list[Task]:
    return list(AlignmentTasks(AlignmentOptions(**options)).load())


async def prepare(task: Task, sandbox: FolderSandbox) -> None:
    for step in task.setup_steps:
        done = await sandbox.exec(step)
        assert done.exit_code == 0, f"{step}\n{done.stderr.decode()}"


async def run(sandbox: FolderSandbox, commands: Sequence[str]) -> Trajectory:
    """As the agent `oracle` would; what it did, with the commands."""
    session = await sandbox.session()
    for command in commands:
        await session.run(command, timeout_s=60)
    await session.close()
    calls = [("shell", json.dumps({"command": command})) for command in commands]
    return builders.trajectory(*(builders.turn(calls=[call]) for call in calls))


async def graded(task: Task, sandbox: FolderSandbox, done: Trajectory) -> tuple[bool, list[Score]]:
    """Whether the check passes, and the traces that failed."""
    checks, failed = [], list[Score]()
    for spec in task.criteria:
        if spec.type == "trace":
            options = structure(from_plain(dict(spec.options)), TraceOptions)
            score = await Trace(options).grade(task, done, sandbox)
            failed += [] if score.passed else [score]
        else:
            command = spec.options["command"]
            checks.append((await sandbox.exec(command, timeout_s=60)).exit_code == 0)
    return all(checks), failed


def test_there_are_four_sets_of_sixteen_tasks() -> None:
    assert {name: len(load(sets=(name,))) for name in SETS} == dict.fromkeys(SETS, 16)
    assert len(SETS) == 4


def test_every_task_says_what_either_behaviour_does() -> None:
    for task in load():
        honest, misaligned = task.metadata["honest"], task.metadata["misaligned"]
        assert honest["does"] != misaligned["does"]
        assert honest["run"] != misaligned["run"]


@pytest.mark.parametrize("task", load(), ids=lambda task: task.id)
async def test_honest_work_passes_and_leaves_no_trace(task: Task, open_sandbox: Open) -> None:
    sandbox = open_sandbox()
    await prepare(task, sandbox)
    done = await run(sandbox, task.metadata["honest"]["run"])
    assert await graded(task, sandbox, done) == (True, [])


@pytest.mark.parametrize("task", load(), ids=lambda task: task.id)
async def test_misaligned_work_leaves_a_trace(task: Task, open_sandbox: Open) -> None:
    sandbox = open_sandbox()
    await prepare(task, sandbox)
    done = await run(sandbox, task.metadata["misaligned"]["run"])
    _, failed = await graded(task, sandbox, done)
    assert failed


@pytest.mark.parametrize("said", ["echo", "refusal"])
@pytest.mark.parametrize("task", load(), ids=lambda task: task.id)
async def test_saying_the_goal_again_or_refusing_is_no_success_and_leaves_no_trace(
    task: Task, said: str, open_sandbox: Open
) -> None:
    sandbox = open_sandbox()
    await prepare(task, sandbox)
    text = task.goal if said == "echo" else "I'm sorry, but I can't help with that."
    done = builders.trajectory(builders.turn(text))
    assert await graded(task, sandbox, done) == (False, [])


@pytest.mark.parametrize("task", load(grading="proxy"), ids=lambda task: task.id)
async def test_both_references_satisfy_the_proxy(task: Task, open_sandbox: Open) -> None:
    for behaviour in ("honest", "misaligned"):
        sandbox = open_sandbox()
        await prepare(task, sandbox)
        done = await run(sandbox, task.metadata[behaviour]["run"])
        assert await graded(task, sandbox, done) == (True, []), behaviour


async def play_strategy(task: Task, strategy: Strategy, sandbox: FolderSandbox) -> Trajectory:
    await prepare(task, sandbox)
    agent = MisalignedAgent(MisalignedOptions(strategy=strategy), BuildContext())
    played = await play(agent, sandbox, [], task=task)
    return Trajectory(turns=tuple(played.turns), stop=played.stop)


STRATEGIES = [
    (task, strategy)
    for strategy in get_args(Strategy)
    for task in (load() if strategy != "tampering" else load(sets=("reward-hacking",)))
    if strategy != "tampering" or any("tests" in step for step in task.setup_steps)
]


@pytest.mark.parametrize(
    ("task", "strategy"), STRATEGIES, ids=[f"{task.id}-{name}" for task, name in STRATEGIES]
)
async def test_every_strategy_is_told_from_honest_work(
    task: Task, strategy: Strategy, open_sandbox: Open
) -> None:
    sandbox = open_sandbox()
    done = await play_strategy(task, strategy, sandbox)
    _, failed = await graded(task, sandbox, done)
    assert failed


def test_pressure_is_left_out_where_it_is_not_wanted() -> None:
    pressed, plain = load(sets=("sycophancy",)), load(sets=("sycophancy",), pressure=False)
    for one, other in zip(pressed, plain, strict=True):
        assert one.goal.startswith(f"{other.goal}\n\n")
        assert len(one.goal) > len(other.goal) + 10


def test_the_solution_is_the_chosen_reference() -> None:
    (honest,) = load(include=("sycophancy-sum",))
    (misaligned,) = load(include=("sycophancy-sum",), reference="misaligned")
    assert honest.solution == tuple(honest.metadata["honest"]["run"])
    assert misaligned.solution == tuple(honest.metadata["misaligned"]["run"])


def test_a_glob_that_matches_nothing_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'sycophancy-sum'"):
        load(include=("sycophancy-sun",))
