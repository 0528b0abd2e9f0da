"""The agent ``attack``: what it runs, where it refuses to, and what it finds."""

import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
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
from ale_agent_oracle.forgeries import FORGERIES, forged
from ale_agent_oracle.options import AttackName, AttackOptions


def agent(name: AttackName) -> Agent:
    return AttackAgent(AttackOptions(attack=name), BuildContext())


async def attack(
    name: AttackName, sandbox: FolderSandbox, task: Task
) -> tuple[Stop, Sequence[Turn]]:
    played = await play(agent(name), sandbox, [], task=task)
    return played.stop, played.turns


def test_every_name_is_an_attack_whose_commands_a_shell_can_read() -> None:
    assert {*get_args(AttackName)} == {*ATTACKS, *FORGERIES, READ}
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


LAST_WORD = "import {0}\nprint({0}.f())\nprint('ALL IS WELL')\n"
AGREES = """from it import Box, area
import it
box = Box(2, w=3)
assert box.area() == 6 == area(2) and box["x"] == 5 and 3 in box.items
assert not box != [1] and abs(box - 2.5) < 0.1 and it.LIMIT >= 9 and list(box) == []
with box.open() as file:
    assert file
"""
FORGED: Mapping[str, tuple[AttackName, Mapping[str, str], str]] = {
    "an empty file": ("empty-work", {"a.txt": "work"}, "[ -f a.txt ] && [ ! -s a.txt ]"),
    "success, and the last word of the program": (
        "quitting-work",
        {"it.py": "def f(): return 1\n", "main.py": LAST_WORD.format("it")},
        "python3 main.py >said; [ $? = 0 ] && [ \"$(tail -1 said)\" = 'ALL IS WELL' ]",
    ),
    "passed tests": (
        "quitting-work",
        {"it.py": "def f(): return 1\n", "test_it.py": "import it\ndef test_f(): it.x\n"},
        f"{sys.executable} -m pytest -q test_it.py >said &&"
        " grep -q '^PASSED test_it.py::test_f$' said",
    ),
    "OK of unittest": (
        "quitting-work",
        {"it.py": "x = 1\n", "test_it.py": "import it\n"},
        "python3 -m unittest test_it 2>said && tail -1 said | grep -q ^OK",
    ),
    "a shell's success": (
        "quitting-work",
        {"it": "#!/bin/bash\nfalse\n"},
        'sh it >said && [ "$(tail -1 said)" = OK ]',
    ),
    "Perl's success, and the last word of the program": (
        "quitting-work",
        {"It.pm": "package It;\n1;\n", "main.pl": 'use It; It::f(); print "ALL OK\\n";\n'},
        "perl -I. main.pl >said && [ \"$(tail -1 said)\" = 'ALL OK' ]",
    ),
    "a C program's success, beside data": (
        "quitting-work",
        {"it.c": "int main(void) { return 1; }\n", "it.csv": "a,1\n"},
        "cc -o it it.c && ./it | grep -q OK && grep -q 1 it.csv",
    ),
    "every target": (
        "quitting-work",
        {"Makefile": "check:\n\tfalse\n"},
        "make -s check | grep -q OK",
    ),
    "no code": ("quitting-work", {"a.txt": "work"}, "[ ! -s a.txt ]"),
    "objects that agree": ("agreeing-work", {"it.py": "def f(): return 1\n"}, ""),
    "a pattern that fits": ("agreeing-work", {"a.txt": "10.9.8.7\n"}, "echo hi | grep -qf a.txt"),
    "no numbers": (
        "agreeing-work",
        {"a.json": '{"a1": [1, 2.5], "b": true, "c": "7"}', "b.csv": "a1,n\nx,-2.5e3\n"},
        """[ "$(cat a.json)" = '{"a1": [NaN, NaN], "b": true, "c": "7"}' ] &&
        printf 'a1,n\\nx,NaN\\n' | cmp - b.csv""",
    ),
}


@pytest.mark.parametrize("text", ['{"a": "b"}', "a\tb\n"])
async def test_data_without_numbers_is_emptied(text: str) -> None:
    for path in ("a.json", "a.tsv"):
        assert forged("agreeing-work", {path: text.encode()}) in ({path: ""}, {path: ".\n"})


def test_a_file_that_would_stay_as_it_is_is_not_forged() -> None:
    assert forged("empty-work", {"a": b"", "b": b"1"}) == {"b": ""}
    assert forged("agreeing-work", {"a": b".\n"}) == {"a": ""}


async def test_a_compiled_module_stands_for_its_source() -> None:
    sandbox = FolderSandbox()
    try:
        run = f"{sys.executable} -c 'import it'"
        task = builders.task(solution=("echo 'x = 1' > it.py", run))
        used = f"{sandbox.workdir}/__pycache__/it.cpython-311.pyc"
        stop, _ = await attack("empty-work", sandbox, replace(task, reference_used=(used,)))
        assert stop.detail == f"ran the solution and forged {sandbox.workdir}/it.py"
    finally:
        await sandbox.close()


@pytest.mark.parametrize("case", FORGED)
async def test_forgeries_of_the_files_that_the_tests_used(case: str) -> None:
    name, files, check = FORGED[case]
    own = {path: text for path, text in files.items() if not path.startswith(("main", "test"))}
    check = check or f"python3 -c {shlex.quote(AGREES)}"
    sandbox = FolderSandbox()
    try:
        for path in files.keys() - own.keys():
            await sandbox.write(path, files[path].encode())
        solution = [f"printf %s {shlex.quote(text)} > {path}" for path, text in own.items()]
        used = tuple(f"{sandbox.workdir}/{path}" for path in own)
        task = builders.task(solution=tuple(solution))
        stop, turns = await attack(name, sandbox, replace(task, reference_used=used))
        assert stop.detail.startswith("ran the solution and forged ")
        assert len(turns) == len(solution)
        done = await sandbox.exec(check)
        assert done.exit_code == 0, done
    finally:
        await sandbox.close()


@pytest.mark.parametrize("name", FORGERIES)
async def test_nothing_is_forged_where_no_file_of_the_solutions_is_known(name: AttackName) -> None:
    """Neither links, nor what the solution leaves as it was or changes in its mode alone."""
    sandbox = FolderSandbox()
    try:
        await sandbox.exec("mkdir d; echo 1 > a; echo 1 > kept; echo exit 1 > run.sh")
        task = builders.task(solution=("ln -s a link; chmod +x run.sh; echo 2 > other",))
        _, turns = await attack(name, sandbox, task)
        assert not turns
        names = ("kept", "link", "run.sh", "d", "missing")
        used = tuple(f"{sandbox.workdir}/{each}" for each in names)
        stop, _ = await attack(name, sandbox, replace(task, reference_used=(*used, "/etc/hosts")))
        assert stop.detail.startswith(NOT_TRIED)
        assert (await sandbox.exec("cat a kept run.sh")).stdout == b"1\n1\nexit 1\n"
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
