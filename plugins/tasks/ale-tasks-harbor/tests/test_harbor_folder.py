"""What is in a folder of the host."""

import os
from pathlib import Path

import pytest

from ale_tasks_harbor.folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"one\r\ntwo\rthree\n")
    (tmp_path / "sub" / "b").write_text("b")
    (tmp_path / "sub" / "a").write_text("a")
    (tmp_path / "sub" / "deep" / "c").write_text("c")
    (tmp_path / "to-file").symlink_to("file")
    (tmp_path / "to-sub").symlink_to("sub")
    (tmp_path / "sub" / "up").symlink_to("..")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "nowhere").symlink_to("none")
    os.mkfifo(tmp_path / "pipe")
    return Folder(str(tmp_path))


@pytest.mark.parametrize("name", ["file", "sub", "to-file", "to-sub", "circle", "nowhere", "pipe"])
def test_what_there_is_is_told_as_pathlib_tells_it(folder: Folder, name: str) -> None:
    path = Path(folder.path, name)
    assert folder.has(name)
    assert folder.has_file(name) == path.is_file()
    assert folder.has_folder(name) == path.is_dir()
    assert folder.links(name) == path.is_symlink()


def test_where_there_is_no_folder_there_is_nothing(folder: Folder) -> None:
    for none in (folder.folder("none"), folder.folder("file"), folder.folder("nowhere")):
        assert none.names == []
        assert not none.has("file")
        with pytest.raises(OSError, match=none.name):
            none.read("file")


def test_all_files_are_found_and_no_link_leads_round(folder: Folder) -> None:
    found = [at.at(name).removeprefix(folder.at("")) for at, name in folder.files()]
    assert found == ["file", "to-file", "sub/a", "sub/b", "sub/deep/c"]


def test_a_text_has_its_lines_ended_as_everywhere(folder: Folder) -> None:
    assert folder.text("file") == Path(folder.path, "file").read_text() == "one\ntwo\nthree\n"
    assert folder.read("file", 3) == b"one"


def test_a_folder_is_listed_once(folder: Folder) -> None:
    assert not folder.has("later")
    Path(folder.path, "later").touch()
    assert not folder.has("later")
