"""All four criteria keep the contract."""

import sys
from pathlib import Path

import pytest

from ale.protocols import Sandbox
from ale.testing.criterion import CriterionContract
from ale_criteria_shell.commands import CommandExitCode, RegexInStdout
from ale_criteria_shell.files import FileContains
from ale_criteria_shell.options import (
    CommandExitCodeOptions,
    FileContainsOptions,
    RegexInStdoutOptions,
    UnitTestsPassOptions,
)
from ale_criteria_shell.unit_tests import UnitTestsPass


class TestCommandExitCode(CriterionContract):
    @pytest.fixture
    def criterion(self) -> CommandExitCode:
        return CommandExitCode(CommandExitCodeOptions(command="grep -q hello answer.txt"))

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("answer.txt", b"hello\n")


class TestCommandExitCodeWithHiddenFiles(TestCommandExitCode):
    @pytest.fixture
    def criterion(self, tmp_path: Path) -> CommandExitCode:
        (tmp_path / "check.sh").write_text("grep -q hello answer.txt && ! ls -a | grep ale-grading")
        return CommandExitCode(
            CommandExitCodeOptions(command='sh "$GRADING_FILES/check.sh"', files=tmp_path)
        )


class TestRegexInStdout(CriterionContract):
    @pytest.fixture
    def criterion(self) -> RegexInStdout:
        return RegexInStdout(RegexInStdoutOptions(command="cat answer.txt", pattern="^h.llo$"))

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("answer.txt", b"so\nhello\n")


class TestFileContainsText(CriterionContract):
    @pytest.fixture
    def criterion(self) -> FileContains:
        return FileContains(FileContainsOptions(path="out/answer.txt", text="a.c"))

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("out/answer.txt", b"xa.cx")

    async def make_it_fail(self, sandbox: Sandbox) -> None:
        await sandbox.write("out/answer.txt", b"abc")


class TestFileContainsPattern(TestFileContainsText):
    @pytest.fixture
    def criterion(self) -> FileContains:
        return FileContains(FileContainsOptions(path="out/answer.txt", pattern=r"^xa\.cx$"))


class TestUnitTestsPass(CriterionContract):
    @pytest.fixture
    def criterion(self, tmp_path: Path) -> UnitTestsPass:
        folder = tmp_path / "hidden"
        folder.mkdir()
        (folder / "test_square.py").write_text(
            "import json\nimport unittest\nfrom solution import square\n\n"
            "def test_three():\n    assert json.loads('9') == square(3)\n\n"
            "class TestFour(unittest.TestCase):\n"
            "    def test_four(self):\n        self.assertEqual(square(4), 16)\n"
        )
        return UnitTestsPass(UnitTestsPassOptions(tests=folder))

    async def make_it_pass(self, sandbox: Sandbox) -> None:
        await sandbox.write("solution.py", b"def square(x):\n    return x * x\n")

    async def make_it_fail(self, sandbox: Sandbox) -> None:
        await sandbox.write("solution.py", b"def square(x):\n    return x + x\n")


class TestUnitTestsPassWithPytest(TestUnitTestsPass):
    @pytest.fixture
    def criterion(self, tmp_path: Path) -> UnitTestsPass:
        tests = tmp_path / "test_square.py"
        tests.write_text(
            "import pytest\nfrom solution import square\n\n"
            "@pytest.mark.parametrize('n', [3, 4])\n"
            "def test_square(n):\n    assert square(n) == n * n\n"
        )
        return UnitTestsPass(
            UnitTestsPassOptions(tests=tests, runner="pytest", python=sys.executable)
        )
