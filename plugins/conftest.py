"""Leaves out the tests of a package whose dependencies are not installed, and says so."""

import gc
import importlib.metadata
import re
import runpy
import tomllib
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NOT_TRIED = runpy.run_path(str(HERE.parent / "tests" / "not_tried.py"))

gc.set_threshold(100_000, 50, 100)  # why: tests/conftest.py

_left_out: dict[str, list[str]] = {}


@cache
def missing(folder: Path) -> list[str]:
    """Distributions that the package in this folder needs and that are not installed."""
    about = tomllib.loads((folder / "pyproject.toml").read_text())
    needs = about["project"].get("dependencies", []) + about["dependency-groups"]["test"]
    names = {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in needs}
    return sorted(name for name in names if not _installed(name))


def _installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a package that lacks something."""
    parts = collection_path.relative_to(HERE).parts
    if len(parts) < 2 or not (HERE / parts[0] / parts[1] / "pyproject.toml").exists():
        return None
    if lacking := missing(HERE / parts[0] / parts[1]):
        _left_out[parts[1]] = lacking
        return True
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """As in tests/conftest.py, and if what a command named is left out."""
    NOT_TRIED["broken_promise"](session, HERE)
    named = {Path(argument).resolve().name for argument in session.config.args}
    if named & _left_out.keys() and not session.config.option.collectonly:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left out, and what was skipped."""
    NOT_TRIED["summarise"](terminalreporter, HERE)
    for name, lacking in _left_out.items():
        terminalreporter.write_line(f"{name} was not tested: {', '.join(lacking)} not installed")


def pytest_collection_finish() -> None:
    """As in tests/conftest.py."""
    gc.freeze()
