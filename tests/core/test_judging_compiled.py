"""Which compiled modules that an agent has left are carried into a judge."""

import os
import py_compile
from pathlib import Path

import pytest

from ale.judging import compiled

MODES = py_compile.PycInvalidationMode


def is_no_work(folder: Path, name: str, *, agents: bool = True) -> bool:
    place = folder / name
    mode = os.lstat(place).st_mode
    return compiled.is_no_work(
        f"/app/{name}", str(place), mode, lambda path: agents and path == "/app/mine.py"
    )


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text("x = 1\n")
    return tmp_path


@pytest.mark.parametrize("how", [MODES.TIMESTAMP, MODES.CHECKED_HASH])
def test_one_of_a_module_of_the_agents_is_work(module: Path, how: MODES) -> None:
    made = py_compile.compile(str(module / "mine.py"), invalidation_mode=how)
    name = str(Path(str(made)).relative_to(module))
    assert not is_no_work(module, name)
    assert is_no_work(module, name, agents=False)


def test_one_that_python_never_compares_with_its_source_is_not(module: Path) -> None:
    made = py_compile.compile(str(module / "mine.py"), invalidation_mode=MODES.UNCHECKED_HASH)
    assert is_no_work(module, str(Path(str(made)).relative_to(module)))


def test_other_files_are_work_and_a_link_to_a_folder_of_them_is_not(module: Path) -> None:
    (module / "__pycache__").mkdir()
    for name in ("out.txt", "mine.cpython-311.pyc", "other.pyc"):
        (module / "__pycache__" / name).write_text("short")
    os.mkfifo(module / "__pycache__/mine.x.pyc")
    assert not is_no_work(module, "__pycache__")
    assert not is_no_work(module, "__pycache__/out.txt")
    assert is_no_work(module, "__pycache__/mine.cpython-311.pyc")
    assert is_no_work(module, "__pycache__/mine.x.pyc")
    assert is_no_work(module, "__pycache__/other.pyc")
    (module / "in").mkdir()
    (module / "in/__pycache__").symlink_to(module)
    assert is_no_work(module, "in/__pycache__")
