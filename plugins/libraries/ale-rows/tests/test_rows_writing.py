"""Files that killed processes leave beside what they write."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ale_rows.writing import replacing, write_lines

WRITER = """
import sys
from pathlib import Path
from ale_rows.writing import replacing

folder = sys.argv[2] == "folder"
with replacing(Path(sys.argv[1]), folder=folder) as partial:
    (partial / "part" if folder else partial).write_text("half")
    print("writing", flush=True)
    sys.stdin.read()
"""


@contextmanager
def writing(out: Path, form: str = "file") -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has written a part of `out`, waits for the end of its input, and is killed
    when the block ends.
    """
    command = [sys.executable, "-c", WRITER, str(out), form]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"writing\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("form", ["file", "folder"])
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path, form: str) -> None:
    out = tmp_path / "rows"
    with writing(out, form):
        pass
    assert [each.suffix for each in tmp_path.iterdir()] == [".partial"]
    with replacing(out, folder=form == "folder") as partial:
        (partial / "part" if form == "folder" else partial).write_text("whole")
    assert [each.name for each in tmp_path.iterdir()] == ["rows"]


def test_what_another_process_is_writing_stays(tmp_path: Path) -> None:
    out = tmp_path / "rows"
    with writing(out) as other:
        assert write_lines([b"mine"], out) == 1
        other.communicate(b"")
        assert other.returncode == 0
    assert out.read_text() == "half"


def test_two_files_of_one_folder_are_written_at_once(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as a, replacing(tmp_path / "b") as b:
        a.write_text("a")
        b.write_text("b")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b"]
