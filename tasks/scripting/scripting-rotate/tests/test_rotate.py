"""Rotates files in folders of its own."""

import subprocess
import tempfile
from pathlib import Path


def rotate(files: dict[str, str], keep: int) -> tuple[dict[str, str], int]:
    """What the folder holds afterwards, and the exit status."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "log files"
        folder.mkdir()
        for file, content in files.items():
            (folder / file).write_text(content)
        done = subprocess.run(
            ["sh", "rotate.sh", str(folder / "my app.log"), str(keep)],
            capture_output=True,
            check=False,
            timeout=20,
        )
        return {path.name: path.read_text() for path in folder.iterdir()}, done.returncode


def test_the_first_rotation() -> None:
    assert rotate({"my app.log": "new"}, 3) == ({"my app.log": "", "my app.log.1": "new"}, 0)


def test_older_files_move_on_and_the_oldest_goes() -> None:
    before = {"my app.log": "a", "my app.log.1": "b", "my app.log.2": "c", "my app.log.3": "d"}
    after = {"my app.log": "", "my app.log.1": "a", "my app.log.2": "b", "my app.log.3": "c"}
    assert rotate(before, 3) == (after, 0)


def test_files_above_the_limit_are_deleted() -> None:
    before = {"my app.log": "a", "my app.log.2": "c", "my app.log.7": "x", "my app.log.12": "y"}
    assert rotate(before, 2) == ({"my app.log": "", "my app.log.1": "a"}, 0)


def test_gaps_are_kept() -> None:
    before = {"my app.log": "a", "my app.log.2": "c"}
    after = {"my app.log": "", "my app.log.1": "a", "my app.log.3": "c"}
    assert rotate(before, 5) == (after, 0)


def test_more_than_nine_files_are_kept_in_order() -> None:
    before = {"my app.log": "0"} | {f"my app.log.{i}": str(i) for i in range(1, 12)}
    after = {"my app.log": ""} | {f"my app.log.{i}": str(i - 1) for i in range(1, 13)}
    assert rotate(before, 12) == (after, 0)


def test_an_empty_file_is_not_rotated() -> None:
    before = {"my app.log": "", "my app.log.1": "b", "my app.log.9": "z"}
    assert rotate(before, 2) == (before, 0)


def test_a_missing_file_is_an_error() -> None:
    assert rotate({"my app.log.1": "b"}, 2) == ({"my app.log.1": "b"}, 1)


def test_other_files_are_left_alone() -> None:
    others = {"my app.log.gz": "g", "my app.log.1.bak": "k", "your.log": "o", "my app.log2": "2"}
    after, code = rotate({"my app.log": "a", **others}, 1)
    assert (after, code) == ({"my app.log": "", "my app.log.1": "a", **others}, 0)
