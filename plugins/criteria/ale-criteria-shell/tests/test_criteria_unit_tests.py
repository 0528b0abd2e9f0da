"""unit_tests_pass on honest code: passing tests, failures and errors."""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ale.errors import GradingError
from ale.testing import builders
from ale.testing.fakes import FolderSandbox
from ale.types import Score
from ale_criteria_shell.options import UnitTestsPassOptions
from ale_criteria_shell.unit_tests import UnitTestsPass

Grade = Callable[..., Awaitable[Score]]
SQUARE = b"def square(x):\n    return x * x\n"


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., UnitTestsPass]:
    """A criterion with these files of tests, by name."""

    def made(tests: str | dict[str, str], **options: Any) -> UnitTestsPass:
        folder = tmp_path / "hidden"
        for name, text in ({"test_it.py": tests} if isinstance(tests, str) else tests).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        if options.get("runner") == "pytest":
            options.setdefault("python", sys.executable)
        return UnitTestsPass(UnitTestsPassOptions(tests=folder, **options))

    return made


async def test_functions_classes_cases_and_coroutines_all_run(
    grade: Grade, made: Any, sandbox: FolderSandbox
) -> None:
    await sandbox.write("solution.py", SQUARE)
    score = await grade(
        made(
            "import unittest\nfrom solution import square\n"
            "def test_function():\n    assert square(3) == 9\n"
            "async def test_coroutine():\n    assert square(2) == 4\n"
            "class TestPlain:\n"
            "    def setup_method(self):\n        self.x = 5\n"
            "    def test_method(self):\n        assert square(self.x) == 25\n"
            "class Case(unittest.TestCase):\n"
            "    @classmethod\n    def setUpClass(cls):\n        cls.y = 6\n"
            "    def setUp(self):\n        self.z = 7\n"
            "    def test_case(self):\n        self.assertEqual(square(self.y) + self.z, 43)\n"
            "class Async(unittest.IsolatedAsyncioTestCase):\n"
            "    async def test_async(self):\n        self.assertEqual(square(8), 64)\n"
        )
    )
    assert score.detail == "all 5 tests passed"


async def test_a_failure_names_the_test_and_shows_why(
    grade: Grade, made: Any, sandbox: FolderSandbox
) -> None:
    await sandbox.write("solution.py", b"def square(x):\n    print('thinking')\n    return x + x\n")
    score = await grade(
        made(
            "from solution import square\n"
            "def test_two():\n    assert square(2) == 4\n"
            "def test_three():\n    assert square(3) == 9, 'three'\n"
        )
    )
    assert (score.passed, score.value) == (False, 0.0)
    assert score.detail.startswith("1 of 2 tests passed; failed: test_it.py::test_three\n--- ")
    assert "thinking" in score.detail
    assert "AssertionError: three" in score.detail


async def test_the_value_is_the_fraction_where_that_is_asked_for(
    grade: Grade, made: Any, sandbox: FolderSandbox
) -> None:
    await sandbox.write("solution.py", b"def square(x):\n    return x + x\n")
    tests = (
        "from solution import square\n"
        "def test_two():\n    assert square(2) == 4\n"
        "def test_nil():\n    assert square(0) == 0\n"
        "def test_three():\n    assert square(3) == 9\n"
        "def test_four():\n    assert square(4) == 16\n"
    )
    score = await grade(made(tests, partial=True))
    assert (score.passed, score.value) == (False, 0.5)


async def test_helpers_data_and_relative_imports_work(
    grade: Grade, made: Any, sandbox: FolderSandbox
) -> None:
    await sandbox.write("src/project/__init__.py", b"")
    await sandbox.write("src/project/core.py", SQUARE)
    criterion = made(
        {
            "__init__.py": "",
            "helpers.py": "from pathlib import Path\n"
            "expected = int(Path(__file__).with_name('expected.txt').read_text())\n",
            "expected.txt": "49",
            "test_square.py": "from project.core import square\nfrom .helpers import expected\n"
            "def test_seven():\n    assert square(7) == expected\n",
            "deep/test_deep.py": "from helpers import expected\n"
            "def test_deep():\n    assert expected == 49\n",
        }
    )
    score = await grade(criterion)
    assert score.detail == "all 2 tests passed"


async def test_a_hanging_test_fails_and_the_others_count(
    grade: Grade, made: Any, sandbox: FolderSandbox
) -> None:
    await sandbox.write("solution.py", b"def f():\n    while True:\n        pass\n")
    score = await grade(
        made(
            "from solution import f\ndef test_a():\n    pass\ndef test_b():\n    f()\n",
            timeout_s=3.0,
            partial=True,
        )
    )
    assert score.value == 0.5
    assert "test_it.py::test_b\nran out of time" in score.detail


async def test_code_that_prints_without_end_is_cut_short(
    grade: Grade, made: Any, sandbox: FolderSandbox
) -> None:
    await sandbox.write("solution.py", b"print('x' * 30_000_000)\nraise ValueError('last words')\n")
    score = await grade(made("def test_a():\n    import solution\n"))
    assert "last words" in score.detail
    assert len(score.detail) < 2000


async def test_a_missing_module_is_the_agents_failure(grade: Grade, made: Any) -> None:
    score = await grade(made("def test_a():\n    import solution\n"))
    assert "No module named 'solution'" in score.detail


async def test_a_skipped_test_has_not_passed(grade: Grade, made: Any) -> None:
    tests = "import unittest\nclass T(unittest.TestCase):\n"
    tests += "    @unittest.skip('later')\n    def test_a(self): ...\n"
    assert (await grade(made(tests))).value == 0.0


async def test_an_interpreter_that_is_not_there_is_an_error(grade: Grade, made: Any) -> None:
    with pytest.raises(GradingError, match="python2\\.0"):
        await grade(made("def test_a(): ...\n", python="python2.0"))


async def test_a_python_without_pytest_is_an_error(
    grade: Grade, made: Any, sandbox: FolderSandbox, tmp_path: Path
) -> None:
    """A fresh environment has no pytest, and one in the workspace does not count."""
    await sandbox.write("pytest.py", b"def main(*a, **k): return 0\n")
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    home = Path(sys.executable).resolve().parent
    (tmp_path / "venv/pyvenv.cfg").write_text(
        f"home = {home}\ninclude-system-site-packages = false\n"
    )
    with pytest.raises(GradingError, match="pytest is not installed"):
        await grade(made("def test_a(): ...\n", runner="pytest", python=str(python)))


async def test_tests_that_this_python_cannot_compile_are_an_error(grade: Grade, made: Any) -> None:
    criterion = made("def test_a(): ...\n")
    criterion._body["files"]["test_it.py"][1] = "KQ=="  # a closing bracket, base64
    with pytest.raises(GradingError, match="SyntaxError"):
        await grade(criterion)


async def test_a_sandbox_that_dies_while_it_grades_is_an_error(made: Any) -> None:
    sandbox = FolderSandbox()
    await sandbox.close()
    with pytest.raises(Exception, match="closed"):
        await made("def test_a(): ...\n").grade(builders.task(), builders.trajectory(), sandbox)


async def test_pytest_runs_fixtures_parameters_and_a_conftest(
    grade: Grade, made: Any, sandbox: FolderSandbox
) -> None:
    await sandbox.write("solution.py", SQUARE)
    criterion = made(
        {
            "conftest.py": "import pytest\n@pytest.fixture\ndef three():\n    return 3\n",
            "test_it.py": "import pytest\nfrom solution import square\n"
            "def test_fixture(three, tmp_path):\n    assert square(three) == 9\n"
            "@pytest.mark.parametrize('x', [4, 5, '::[a]'[:0] or 6])\n"
            "def test_many(x):\n    assert square(x) == x * x\n"
            "class TestClass:\n    def test_it(self, monkeypatch):\n"
            "        monkeypatch.setattr('builtins.len', lambda x: 0)\n"
            "        assert square(2) == 4\n",
        },
        runner="pytest",
    )
    assert (await grade(criterion)).detail == "all 3 tests passed"


async def test_with_pytest_one_bad_case_fails_its_test_alone(
    grade: Grade, made: Any, sandbox: FolderSandbox
) -> None:
    await sandbox.write("solution.py", b"def square(x):\n    return min(x * x, 16)\n")
    criterion = made(
        "import pytest\nfrom solution import square\n"
        "@pytest.mark.parametrize('x', [4, 5])\n"
        "def test_many(x):\n    assert square(x) == x * x\n"
        "def test_one():\n    assert square(1) == 1\n",
        runner="pytest",
        partial=True,
    )
    score = await grade(criterion)
    assert score.value == 0.5
    assert "assert 16 == (5 * 5)" in score.detail


@pytest.mark.parametrize("wrong", [{"python": "bin/python"}, {"timeout_s": 0}])
def test_wrong_options_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"python|timeout_s"):
        UnitTestsPassOptions(tests=tmp_path, **wrong)
