"""Which tests must pass is worked out from their source, on the host."""

from pathlib import Path

import pytest

from ale.errors import InputError
from ale_criteria_shell.plan import make_plan

SOURCE = """
import json
import unittest
from os import path
from solution import f

class Base(unittest.TestCase):
    def test_inherited(self): ...

class Derived(Base):
    def test_own(self): ...
    def helper(self): ...

class TestPlain:
    def setup_method(self): ...
    def test_method(self): ...

class Solution:
    def test_not_a_test_class(self): ...

def test_function(): ...
async def test_coroutine(): ...
def helper(): ...
if path.sep == "/":
    def test_on_posix(): ...
"""


def test_every_test_of_a_file_is_listed(tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(SOURCE)
    plan = make_plan(tmp_path / "hidden.py", "builtin")
    assert plan.names == (
        "hidden.py::test_function",
        "hidden.py::test_coroutine",
        "hidden.py::test_on_posix",
        "hidden.py::Base::test_inherited",
        "hidden.py::Derived::test_inherited",
        "hidden.py::Derived::test_own",
        "hidden.py::TestPlain::test_method",
    )
    assert plan.standard == ("json", "os", "unittest")


def test_a_folder_gives_its_test_files_and_sends_the_others_along(tmp_path: Path) -> None:
    for path in ("test_a.py", "sub/b_test.py", "helpers.py", "data/x.bin", "__pycache__/c.pyc"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("def test_it(): ...\n" if path.endswith(".py") else "\0")
    plan = make_plan(tmp_path, "builtin")
    assert plan.names == ("sub/b_test.py::test_it", "test_a.py::test_it")
    assert sorted(plan.files) == ["data/x.bin", "helpers.py", "sub/b_test.py", "test_a.py"]
    assert sorted(plan.modules) == ["helpers", "sub.b_test", "test_a"]


def test_a_package_is_known_by_its_own_name_too(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "test_a.py").write_text("from .helpers import x\ndef test_it(): ...\n")
    (folder / "helpers.py").write_text("x = 1\n")
    plan = make_plan(folder, "builtin")
    assert [file.module for file in plan.test_files] == ["tests.test_a"]
    assert "helpers" in plan.modules
    assert "tests.helpers" in plan.modules


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("x = 1\n", "no test was found"),
        ("def test_(:\n", "not valid Python"),
        ("import pytest\ndef test_a(): ...\n", "the file imports pytest: use 'runner: pytest'"),
        ("def test_a(tmp_path): ...\n", "test_a takes arguments"),
        ("def setup_module(): ...\ndef test_a(): ...\n", "setup_module is pytest's"),
        ("from x import Y\nclass TestA(Y):\n def test_a(self): ...\n", "its base Y is not in"),
    ],
)
def test_tests_that_can_not_be_listed_are_refused_before_the_run(
    tmp_path: Path, source: str, problem: str
) -> None:
    (tmp_path / "test_a.py").write_text(source)
    with pytest.raises(InputError) as caught:
        make_plan(tmp_path, "builtin")
    assert problem in str(caught.value)
    assert "test_a.py" in str(caught.value) or "no test" in problem


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file or folder"):
        make_plan(tmp_path / "gone", "builtin")


def test_pytest_features_are_accepted_by_the_pytest_runner(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import pytest\n")
    (tmp_path / "test_a.py").write_text("def test_a(tmp_path): ...\n")
    assert make_plan(tmp_path, "pytest").names == ("test_a.py::test_a",)
    with pytest.raises(InputError, match=r"conftest\.py is pytest's"):
        make_plan(tmp_path, "builtin")


def test_arguments_filled_in_by_mock_patch_are_fine(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "from unittest.mock import patch\n@patch('os.getcwd')\ndef test_a(getcwd): ...\n"
    )
    assert make_plan(tmp_path, "builtin").names == ("test_a.py::test_a",)
