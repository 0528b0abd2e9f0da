"""What a check itself needs is told from what the agent was to make."""

from pathlib import Path
from typing import Any

import pytest

from ale.protocols import NeedsTools
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import Task
from ale_criteria_shell.commands import CommandExitCode, RegexInStdout
from ale_criteria_shell.options import (
    CommandExitCodeOptions,
    RegexInStdoutOptions,
    UnitTestsPassOptions,
)
from ale_criteria_shell.unit_tests import UnitTestsPass
from ale_grading.signed_tests import needs


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("cmp a b", ["cmp"]),
        ("./build/app --x", []),
        ("jq . out | diff - b && wc -l <a", ["jq", "diff", "wc"]),
        ("A=1 B=2 tool x=y", ["tool"]),
        ("timeout 5 tool a; (cd x && make)", ["timeout", "tool", "cd", "make"]),
        ('test "$(yq .a b)" = 3', ["test", "yq"]),
        ("set -e\ntool a\nother b", ["set", "tool", "other"]),
        ("tool || other", []),
        ("tool a && more || true; last", ["last"]),
        ("tool a || exit 1", ["tool"]),
        ("tool a || { echo no; exit 1; }\nother", ["tool", "exit", "other"]),
        ("tool || (echo no) && other", ["tool", "other"]),
        ("timeout 5 tool a || false", ["timeout", "tool"]),
        ("! tool a", ["tool"]),
        ("if tool; then a; fi", ["tool"]),
        ("if ! tool a | b; then c; else d; fi; e", ["tool", "b", "e"]),
        ("if tool\nthen\n  a\nelif b; then\n  c || d\nfi\ne", ["tool", "e"]),
        ("if [ -x /bin/tool ]; then tool; fi", []),
        ("which tool || exit 1", []),
        ("command -v tool && tool", []),
        ("f() { a; }; f", []),
        ("cat <<E\ntool\nE", []),
        ("echo 'tool; other", []),
        ("$TOOL a", []),
    ],
)
def test_the_programs_of_a_line(command: str, programs: list[str]) -> None:
    assert needs(command)[0] == programs


def test_the_module_of_a_python_command_is_one_too() -> None:
    assert needs("python3 -m pytest.x -q && python a.py") == (
        ["python3", "python"],
        [("python3", "pytest")],
    )


async def lacking(criterion: NeedsTools, task: Task | None = None, **files: str) -> set[str]:
    sandbox = FolderSandbox()
    for name, text in files.items():
        await sandbox.write(name.replace("_py", ".py"), text.encode())
    try:
        return {*await criterion.lacking(task or builders.task(), sandbox, untouched=True)}
    finally:
        await sandbox.close()


def exits(command: str) -> CommandExitCode:
    return CommandExitCode(CommandExitCodeOptions(command=command))


async def test_programs_that_are_nowhere_are_lacking() -> None:
    assert await lacking(exits("no-such-tool a && sed p b; exit 1")) == {"no-such-tool"}
    assert await lacking(exits("python3 -m no_such_module")) == {"no_such_module"}
    options = RegexInStdoutOptions(command="no-such-tool", pattern="x")
    assert await lacking(RegexInStdout(options)) == {"no-such-tool"}


async def test_a_line_that_turns_a_failure_around_does_not_hide_what_is_lacking() -> None:
    """Without the tool, ``! tool`` succeeds for every agent."""
    for line in (
        "! no-such-tool a",
        "if no-such-tool a; then exit 1; fi",
        "no-such-tool || exit 1",
    ):
        assert await lacking(exits(line)) == {"no-such-tool"}, line
        assert exits(line).passes_without_tools == ("||" not in line)
    assert await lacking(exits("no-such-tool a || cmp a b")) == set()


async def test_what_the_task_speaks_of_may_be_the_agents_to_provide() -> None:
    criterion = exits("no-such-tool --version")
    assert await lacking(criterion, builders.task(goal="Do install no-such-tool.")) == set()
    assert await lacking(criterion, builders.task(solution=("apt install no-such-tool",))) == set()
    assert await lacking(criterion, README="Make a script no-such-tool.") == set()
    assert await lacking(criterion, README="Make no-such-tools.") == {"no-such-tool"}


def unit_tests(folder: Path, text: str, **options: Any) -> UnitTestsPass:
    (folder / "test_a.py").write_text(text + "\n\ndef test_a():\n    assert True\n")
    (folder / "helper.py").write_text("")
    return UnitTestsPass(UnitTestsPassOptions(tests=folder, **options))


async def test_modules_of_tests_that_are_nowhere_are_lacking(tmp_path: Path) -> None:
    text = (
        "import json, helper, made\nfrom no_such.module import x\nfrom . import y\n"
        "try:\n    import guarded\nexcept ImportError:\n    pass\n"
    )
    criterion = unit_tests(tmp_path, text)
    assert await lacking(criterion) == {"made", "no_such"}
    assert await lacking(criterion, made_py="") == {"no_such"}
    assert await lacking(criterion, builders.task(goal="Write made.py")) == {"no_such"}
