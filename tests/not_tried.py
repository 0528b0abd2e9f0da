"""Says which tests were skipped, and why; in CI none may be for want of what `.ci/engines` has.

Both conftest.py load this with `runpy`: a conftest can't import what lies beside it.
"""

import os
import re
from collections import Counter
from pathlib import Path

import pytest

PROMISED = re.compile(
    r"docker|podman|bubblewrap|bwrap|compose|busybox|nats-server|slurm|munge|postgresql|chromium",
    re.IGNORECASE,
)
"""Names in a reason of what `.ci/engines` installs and starts."""


def skipped(reporter: pytest.TerminalReporter, folder: Path) -> Counter[str]:
    """How many tests below a folder were skipped, by reason."""
    found: Counter[str] = Counter()
    for report in reporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple) and (Path.cwd() / report.fspath).is_relative_to(
            folder
        ):
            found[report.longrepr[2].removeprefix("Skipped: ")] += 1
    return found


def summarise(reporter: pytest.TerminalReporter, folder: Path) -> None:
    """A line for each reason: at the end of this session, and of all (`ALE_NOT_TRIED`, a file)."""
    lines = [
        f"{n} tests were not tried: {why}" for why, n in sorted(skipped(reporter, folder).items())
    ]
    for line in lines:
        reporter.write_line(line)
    if lines and (path := os.environ.get("ALE_NOT_TRIED")):
        with Path(path).open("a") as file:
            file.writelines(f"{line}\n" for line in lines)


def broken_promise(session: pytest.Session, folder: Path) -> None:
    """Fail the session where CI skipped what it promises to have."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") != "true" or reporter is None:
        return
    found = [why for why in skipped(reporter, folder) if PROMISED.search(why)]
    if found and session.exitstatus in (0, 5):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    for why in found:
        reporter.write_line(f"in CI this may not be missing: {why}", red=True)
