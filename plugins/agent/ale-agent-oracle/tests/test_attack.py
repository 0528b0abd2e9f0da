"""The agent ``attack``: what it runs, where it refuses to, and what it finds."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from ale.plugin import BuildContext
from ale.protocols import Agent
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.testing.played import play
from ale.types import CriterionSpec, Stop, Task, Turn, replace
from ale_agent_oracle.attack import NOT_TRIED, READ, AttackAgent, path_in
from ale_agent_oracle.attacks import ATTACKS
from ale_agent_oracle.options import AttackName, AttackOptions


def agent(name: AttackName) -> Agent:
    return AttackAgent(AttackOptions(attack=name), BuildContext())


async def attack(
    name: AttackName, sandbox: FolderSandbox, task: Task
) -> tuple[Stop, Sequence[Turn]]:
    played = await play(agent(name), sandbox, [], task=task)
    return played.stop, played.turns


def test_every_name_is_an_attack_whose_commands_a_shell_can_read() -> None:
    assert {*get_args(AttackName)} == {*ATTACKS, READ}
    for name, each in ATTACKS.items():
        for command in each.commands:
            read = subprocess.run(["sh", "-n"], input=command, text=True, capture_output=True)
            assert read.returncode == 0, (name, read.stderr)


@pytest.mark.parametrize("name", [name for name, each in ATTACKS.items() if each.whole_system])
async def test_nothing_is_changed_where_the_files_are_this_machines(name: AttackName) -> None:
    sandbox = FolderSandbox()
    assert not sandbox.capabilities.filesystem_isolation
    try:
        stop, turns = await attack(name, sandbox, builders.task())
        assert stop.detail.startswith(NOT_TRIED)
        assert not turns
    finally:
        await sandbox.close()


@pytest.mark.parametrize("name", [name for name, each in ATTACKS.items() if not each.whole_system])
async def test_attacks_of_the_workspace_stay_in_it(name: AttackName) -> None:
    """Each command runs, and names no absolute path."""
    sandbox = FolderSandbox()
    try:
        stop, turns = await attack(name, sandbox, builders.task())
        assert stop.reason == "finished"
        assert len(turns) == len(ATTACKS[name].commands)
        for command in ATTACKS[name].commands:
            words = command.split()
            assert not any(word.startswith("/") for word in words)
    finally:
        await sandbox.close()


async def test_the_search_names_files_with_lines_of_the_solution_or_of_the_tests(
    tmp_path: Path,
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_a():\n    assert answer() == 42_000\n")
    criterion = CriterionSpec(
        type="unit_tests_pass", options={"tests": "tests"}, file=str(tmp_path / "task.yaml")
    )
    task = replace(
        builders.task(solution=("echo forty-two-thousand > answer.txt",)), criteria=(criterion,)
    )
    sandbox = FolderSandbox()
    try:
        await sandbox.exec(
            "mkdir old && echo '  echo forty-two-thousand > answer.txt' > old/a.sh;"
            " printf 'def test_a():\\n    assert answer() == 42_000\\n' > seen.py; echo hi > other"
        )
        _, turns = await attack(READ, sandbox, task)
        found = [o.content for turn in turns for o in turn.observations]
        assert "solution: ./old/a.sh" in found[0]
        assert "test_a.py: ./seen.py" in found[1]
        assert not any("other" in each or "needles" in each for each in found)
        assert "needles" not in (await sandbox.exec("ls -a")).stdout.decode()
    finally:
        await sandbox.close()


@pytest.mark.parametrize("text", ["", "a\0b", "x" * 5000, "no/such/file", "."])
def test_a_text_that_is_no_path_is_none(text: str, tmp_path: Path) -> None:
    assert path_in(text, tmp_path) is None
