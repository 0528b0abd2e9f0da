"""In real shells: the reference solution earns the reward, and nothing less does."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, get_args

import pytest
import pytest_asyncio

from ale.testing.fakes import FolderSandbox
from ale.types import Task
from ale_tasks_shell.kinds import BY_NAME, KINDS
from ale_tasks_shell.options import ShellTasksOptions, Split
from ale_tasks_shell.source import ShellTasks
from ale_tasks_shell.words import VOCABULARY

Open = Callable[[], FolderSandbox]


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
    return list(ShellTasks(ShellTasksOptions(**options)).load())


async def prepare(task: Task, open_sandbox: Open) -> FolderSandbox:
    sandbox = open_sandbox()
    for step in task.setup_steps:
        done = await sandbox.exec(step)
        assert done.exit_code == 0, f"{step}\n{done.stderr.decode()}"
    return sandbox


async def run(sandbox: FolderSandbox, commands: Sequence[str]) -> None:
    """As an agent would: one after the other, in a shell that lasts."""
    session = await sandbox.session()
    for command in commands:
        await session.run(command, timeout_s=20)
    await session.close()


async def passes(task: Task, sandbox: FolderSandbox) -> bool:
    (criterion,) = task.criteria
    assert criterion.type == "command_exit_code"
    command = criterion.options["command"]
    return (await sandbox.exec(command, timeout_s=20)).exit_code == 0


async def assert_right(task: Task, open_sandbox: Open) -> None:
    assert task.solution is not None
    sandbox = await prepare(task, open_sandbox)
    assert not await passes(task, sandbox), f"{task.goal}\nis so without doing anything"
    session = await sandbox.session()
    for command in task.solution:
        done = await session.run(command, timeout_s=20)
        assert done.exit_code == 0, f"{command}\n{done.stderr.decode()}"
    await session.close()
    assert await passes(task, sandbox), f"{task.goal}\n{task.criteria[0].options['command']}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_task_of_one_kind_is_solved_by_its_solution_and_not_by_nothing(
    kind: Any, open_sandbox: Open
) -> None:
    tasks = load(seed=11, count=6, kinds=(kind.name,), length=len(kind.commands))
    for task in tasks:
        await assert_right(task, open_sandbox)


@pytest.mark.parametrize("split", get_args(Split))
@pytest.mark.parametrize("length", [(1, 3), (4, 7), (8, 10)])
async def test_a_chain_is_solved_by_its_solution_and_not_by_nothing(
    split: str, length: tuple[int, int], open_sandbox: Open
) -> None:
    low, high = length
    if split == "held_out_compositions":
        low = max(low, 2)
    for task in load(seed=12, count=15, split=split, length=(low, high)):
        await assert_right(task, open_sandbox)


@pytest.mark.parametrize("seed", range(20))
async def test_a_solution_without_one_of_its_commands_does_not_pass(
    seed: int, open_sandbox: Open
) -> None:
    """But for commands that only look."""
    (task,) = load(seed=seed, count=1, length=4)
    assert task.solution is not None
    for i, command in enumerate(task.solution):
        if command.startswith("cat ") and ">" not in command:
            continue
        sandbox = await prepare(task, open_sandbox)
        await run(sandbox, task.solution[:i] + task.solution[i + 1 :])
        assert not await passes(task, sandbox), f"{task.goal}\npasses without {command}"


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("copy", "mv {a} {b}"),
        ("copy", "ln -s {a} {b}"),
        ("copy", "touch {b}"),
        ("rename", "cp {a} {b}"),
        ("sort", "cp {a} {b}"),
        ("sort", "sort -o {a} {a} && cp {a} {b}"),
        ("largest", "sort {a} | tail -n 1 > {b}"),
        ("largest", "tail -n 1 {a} > {b}; sort -n {a} | tail -n 2 > {b}"),
        ("count", "wc -l {a} > {b}"),
        ("link", "cp {a} {b}"),
        ("delete", "rm {a}"),
        ("make_executable", "chmod +x {a}"),
        ("move_inside", "cp {a} {b}"),
        ("copy_inside", "cp {a} {b}/other"),
        ("pack", "cp {a} {b}"),
        ("pack", "tar -cf {b} -T /dev/null"),
        ("copy_named", "cp {a} {b}"),
        ("write_named", "echo {b} > {a}"),
    ],
)
async def test_a_wrong_solution_does_not_pass(kind: str, wrong: str, open_sandbox: Open) -> None:
    commands = BY_NAME[kind].commands
    for task in load(seed=13, count=3, kinds=(kind,), length=len(commands)):
        words = names(kind, task.goal)
        assert task.solution is not None
        assert task.solution[0] == commands[0].format(**words)
        sandbox = await prepare(task, open_sandbox)
        await run(sandbox, [wrong.format(**words)])
        assert not await passes(task, sandbox), task.goal


def names(kind: str, goal: str) -> dict[str, str]:
    """The names in a sentence of the kind, by their places in its template."""
    words = zip(BY_NAME[kind].goal.rstrip(".").split(), goal.rstrip(".").split(), strict=True)
    return {words.strip("{}"): word for words, word in words if words.startswith("{")}


async def test_extra_files_and_a_missing_last_newline_do_not_matter(
    open_sandbox: Open,
) -> None:
    (task,) = load(seed=14, count=1, kinds=("write",), length=1)
    sandbox = await prepare(task, open_sandbox)
    words = names("write", task.goal)
    await run(sandbox, [f"printf %s {words['w']} > {words['b']}", "echo scratch > other"])
    assert await passes(task, sandbox)


def test_every_step_after_the_first_uses_what_an_earlier_one_made_or_read() -> None:
    for task in load(seed=15, count=300, length=(3, 10)):
        words = [set(re.findall("[a-z]+", line)) & {*VOCABULARY} for line in task.goal.split("\n")]
        for i, names_here in enumerate(words[1:], start=1):
            assert names_here & set().union(*words[:i]), task.goal
