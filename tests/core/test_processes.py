"""Processes that say what they are, and are not listed once they are gone."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ale.processes import FOLDER_VARIABLE, announced, processes

RUNNING = """
import sys, time
from pathlib import Path
from ale.processes import announced
with announced("worker", directory=Path("run"), url="http://h:1", labels=["gpu"]):
    print("announced", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "processes"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder


def started() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUNNING]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=0
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "announced\n"
    return process


def test_a_process_is_listed_while_it_runs(folder: Path) -> None:
    with started() as process:
        (found,) = processes()
        assert (found.kind, found.pid, found.url) == ("worker", process.pid, "http://h:1")
        assert found.directory == str(Path("run").resolve())
        assert found.facts == {"labels": ["gpu"]}
        process.communicate()
    assert process.returncode == 0
    assert processes() == []
    assert not list(folder.iterdir())


def test_a_process_that_was_killed_is_not_listed(folder: Path) -> None:
    with started() as process:
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        assert len(list(folder.iterdir())) == 1
        assert processes() == []
        assert not list(folder.iterdir()), "its file is removed"


def test_the_oldest_is_first_and_several_of_one_process_are_several() -> None:
    with announced("proxy"), announced("loop"):
        assert [each.kind for each in processes()] == ["proxy", "loop"]


def test_where_nothing_can_be_written_the_work_is_done_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "file" / "processes"))
    done = False
    with announced("proxy"):
        done = True
    assert done
    assert "does not show this proxy" in caplog.text
