"""A full disk ends the run with a clear error; what was written stays whole and can be gone on."""

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

N = 40


@pytest.fixture
def config(workshop: Any, shell: Any) -> str:
    """Episodes of about 30 KiB each, which leave a process behind."""
    for number in range(N):
        workshop.task(f"t{number:02}")
    lines = shell("sleep 3003 &", *["seq 1 4000 | head -c 8000"] * 3, "touch done")
    workshop.scripted({"default": lines}, run={"concurrency": 4}, agent={"type": "iflow"})
    return "run.yaml"


def check(workshop: Any, ended: Any, file: str, why: str) -> None:
    """It stopped in order, and resumes when there is room again."""
    assert ended.code == 1, ended.text
    assert f"StoreError: {workshop.run / file} can't be written: {why}" in ended.err
    assert "Traceback" not in ended.text
    assert workshop.left_behind() == []
    assert 0 < len(workshop.episodes()) < N
    assert not list(workshop.run.rglob("*.partial"))


def finish(workshop: Any) -> None:
    before = (workshop.run / "episodes.jsonl").read_bytes()
    workshop.succeeds("run", "--resume", str(workshop.run))
    assert (workshop.run / "episodes.jsonl").read_bytes().startswith(before)
    assert {episode["reward"] for episode in workshop.episodes().values()} == {1.0}
    assert len(workshop.episodes()) == len(workshop.lines("credits/00000.jsonl")) == N


def test_a_file_that_may_not_grow_ends_the_run_in_order(workshop: Any, config: str) -> None:
    running = workshop.start("run", config)
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (300_000, 300_000))
    check(workshop, running.ended(), "episodes.jsonl", "File too large")
    finish(workshop)


@pytest.fixture
def small_disk(workshop: Any) -> Iterator[Path]:
    """A file system of one MiB for the runs."""
    runs: Path = workshop.folder / "runs"
    runs.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(runs)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    yield runs
    subprocess.run(["umount", str(runs)], check=True)


def test_a_full_disk_ends_the_run_in_order(workshop: Any, config: str, small_disk: Path) -> None:
    check(workshop, workshop.ale("run", config), "episodes.jsonl", "No space left on device")
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    finish(workshop)


def test_a_disk_that_is_full_when_credit_is_given_loses_no_episode(
    workshop: Any, config: str, small_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    workshop.succeeds("run", config)
    credits = workshop.run / "credits" / "00000.jsonl"
    credits.unlink()
    used = sum(path.stat().st_blocks * 512 for path in small_disk.rglob("*"))
    size = f"remount,size={used // 1024 + 8}k"
    subprocess.run(["mount", "-o", size, str(small_disk)], check=True)
    ended = workshop.ale("run", "--resume", str(workshop.run))
    assert ended.code == 1, ended.text
    assert "can't be written: No space left on device" in ended.err
    assert "Traceback" not in ended.text
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    finish(workshop)


@pytest.mark.parametrize(
    ("directory", "code", "message"),
    [("file", 2, "run.directory: "), ("/proc/runs", 1, "can't be created: ")],
)
def test_a_folder_that_cannot_be_written_is_reported_before_anything_starts(
    workshop: Any, config: str, directory: str, code: int, message: str
) -> None:
    (workshop.folder / "file").write_text("not a folder")
    ended = workshop.ale("run", config, "--set", f"run.directory={directory}")
    assert ended.code == code, ended.text
    assert message in ended.err
    assert "Traceback" not in ended.text
    assert workshop.left_behind() == []
