"""What is skipped is named at the end; in CI nothing is that `.ci/engines` promises."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPS = """
import pytest

def test_one(): pytest.skip({reason!r})
def test_two(): pytest.skip({reason!r})
def test_three(): pass
"""


def run(folder: Path, reason: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    for name in ("conftest.py", "not_tried.py"):
        shutil.copy(ROOT / "tests" / name, folder)
    (folder / "test_it.py").write_text(SKIPS.format(reason=reason))
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "CI": "", "ALE_NOT_TRIED": str(folder / "lines"), **environ}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_each_reason_has_a_line_here_and_in_the_summary_of_all_sessions(tmp_path: Path) -> None:
    done = run(tmp_path, "docker: no engine answers")
    assert done.returncode == 0
    line = "2 tests were not tried: docker: no engine answers"
    assert line in done.stdout.splitlines()
    assert (tmp_path / "lines").read_text() == f"{line}\n"


@pytest.mark.parametrize(("reason", "code"), [("podman: none answers", 1), ("there is no GPU", 0)])
def test_ci_fails_where_what_it_promises_is_missing(tmp_path: Path, reason: str, code: int) -> None:
    done = run(tmp_path, reason, CI="true")
    assert done.returncode == code, done.stdout
    assert (f"in CI this may not be missing: {reason}" in done.stdout) == bool(code)
