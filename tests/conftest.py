"""What holds for all tests; plugins/conftest.py has the same for theirs."""

import gc
import runpy
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NOT_TRIED = runpy.run_path(str(HERE / "not_tried.py"))

# Of what tests import and collect nothing is garbage, and the collector traverses it again and
# again: 5 to 40% of the CPU time of a test file.
gc.set_threshold(100_000, 50, 100)


def pytest_collection_finish() -> None:
    """Leave what is there before the first test out of each collection."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where CI lacks what it promises."""
    NOT_TRIED["broken_promise"](session, HERE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was skipped."""
    NOT_TRIED["summarise"](terminalreporter, HERE)
