"""Runs the script on folders of its own."""

import subprocess
import tempfile
from pathlib import Path


def backup(folder: Path, source: str = "source", target: str = "target") -> tuple[str, int]:
    script = str(Path("backup.sh").resolve())
    done = subprocess.run(
        ["sh", script, source, target],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    return done.stdout, done.returncode


def folder_with(folder: str, files: dict[str, str]) -> Path:
    source = Path(folder) / "source"
    (source / "sub folder").mkdir(parents=True)
    (source / "sub folder" / "deep.txt").write_text("deep")
    for name, content in files.items():
        (source / name).write_text(content)
    return Path(folder)


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_every_kind_of_name_is_copied() -> None:
    files = {"a.txt": "a", "my file": "b", ".hidden": "c", "-n": "d", "two  spaces ": "e", "*": "f"}
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder_with(temporary, files)
        assert backup(folder) == ("copied 6\n", 0)
        assert content(folder / "target") == files


def test_what_is_there_already_is_not_counted() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder_with(temporary, {"same": "1", "changed": "new", "fresh": "3"})
        (folder / "target").mkdir()
        (folder / "target" / "same").write_text("1")
        (folder / "target" / "changed").write_text("old")
        (folder / "target" / "other").write_text("stays")
        assert backup(folder) == ("copied 2\n", 0)
        assert backup(folder) == ("copied 0\n", 0)
        assert content(folder / "target") == {
            "same": "1",
            "changed": "new",
            "fresh": "3",
            "other": "stays",
        }


def test_an_empty_folder_and_folders_with_spaces() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "my source").mkdir()
        assert backup(folder, "my source", "new/my target") == ("copied 0\n", 0)
        assert (folder / "new" / "my target").is_dir()


def test_a_source_that_is_no_folder_is_an_error_and_makes_nothing() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "file").write_text("x")
        assert backup(folder, "missing") == ("", 1)
        assert backup(folder, "file") == ("", 1)
        assert not (folder / "target").exists()
