"""Files and folders are replaced whole, or stay as they are: `ale.files`."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from ale._config import load_config
from ale._registry import Registry
from ale.errors import InputError, StoreError
from ale.files import open_file, remove_partial, replacing, store_errors, write_whole
from ale.recording import Recording
from ale.strict import decoded, read_text


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "notes.txt", "old")
    write_whole(tmp_path / "new" / "notes.txt", "größer", sync=True)
    assert (tmp_path / "new" / "notes.txt").read_text(encoding="utf-8") == "größer"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["notes.txt"]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """As `/dev/null`, which would be a file for the whole machine."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(StoreError, match="it is a device, a socket or a named pipe"):
            write_whole(tmp_path / name, "new")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_only_a_regular_file_is_opened(tmp_path: Path) -> None:
    """A reader would wait at a pipe, and `/dev/zero` has no end."""
    (tmp_path / "file").write_bytes(b"yes")
    with open_file(tmp_path / "file") as file:
        assert file.read() == b"yes"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "link", "zero", "."):
        with pytest.raises(OSError, match=r"not a regular file|Is a directory"):
            open_file(tmp_path / name)


def test_readers_see_the_old_file_until_the_block_has_ended(tmp_path: Path) -> None:
    target = tmp_path / "rows.jsonl"
    target.write_text("old")
    with replacing(target) as partial:
        partial.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"


def interrupted(partial: Path) -> None:
    partial.write_text("half")
    raise KeyboardInterrupt


def test_after_an_error_the_old_file_stays_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "rows.jsonl"
    target.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(target) as partial:
        interrupted(partial)
    assert target.read_text() == "old"
    assert [*tmp_path.iterdir()] == [target]


def test_a_folder_takes_the_place_of_one_with_other_files(tmp_path: Path) -> None:
    target = tmp_path / "tables"
    for name in ("first", "second"):
        with replacing(target, folder=True, sync=True) as partial:
            (partial / name).write_text(name)
    assert [path.name for path in target.iterdir()] == ["second"]
    assert [*tmp_path.iterdir()] == [target]


def test_a_folder_that_can_not_take_its_place_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "tables"
    target.mkdir()
    (target / "first").write_text("first")
    with pytest.raises(FileNotFoundError), replacing(target, folder=True) as partial:
        partial.rmdir()
    assert [path.name for path in target.iterdir()] == ["first"]
    assert [*tmp_path.iterdir()] == [target]


def test_a_folder_with_files_in_it_is_not_replaced_unasked(tmp_path: Path) -> None:
    target = tmp_path / "run"
    target.mkdir()
    (target / "manifest.json").write_text("{}")
    with pytest.raises(OSError, match="not empty"), replacing(target) as partial:
        partial.mkdir()
    assert (target / "manifest.json").exists()
    assert [*tmp_path.iterdir()] == [target]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    target = tmp_path / "taken" / "notes.txt"
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(StoreError, match=r"taken/notes\.txt can't be written: .+"):
        write_whole(target, b"")
    with pytest.raises(StoreError, match="disk can't be written: No space left"):  # noqa: SIM117
        with store_errors(tmp_path / "disk"):
            raise OSError(errno.ENOSPC, "No space left on device")


def test_what_killed_processes_left_of_one_target_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".mirror.git.17.partial").mkdir()
    (tmp_path / ".mirror.git.17.partial" / "HEAD").write_text("half a clone")
    (tmp_path / ".mirror.git.18.partial").write_text("half a file")
    other = tmp_path / ".other.git.17.partial"
    other.mkdir()
    remove_partial(tmp_path / "mirror.git")
    assert [*tmp_path.iterdir()] == [other]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_may_hold_conversations_is_for_this_user(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    before = os.umask(0)
    try:
        write_whole(file, "secret", private=True)
        with replacing(folder, folder=True, private=True) as partial:
            assert mode(partial) == 0o700
        with replacing(tmp_path / "made", private=True) as partial:
            partial.mkdir()
    finally:
        os.umask(before)
    assert [mode(path) for path in (file, folder, tmp_path / "made")] == [0o600, 0o700, 0o700]


def test_who_could_read_what_is_replaced_may_read_what_replaces_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for kept in (0o644, 0o640, 0o600):
        file.touch()
        file.chmod(kept)
        write_whole(file, "new", private=True)
        assert mode(file) == kept


def test_a_group_reads_what_is_made_in_its_folder_if_the_umask_lets_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    for umask, expected in ((0o002, 0o660), (0o022, 0o640), (0o077, 0o600)):
        before = os.umask(umask)
        try:
            write_whole(tmp_path / str(umask), "new", private=True)
        finally:
            os.umask(before)
        assert mode(tmp_path / str(umask)) == expected


def test_a_run_directory_is_for_this_user(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        recording = Recording(tmp_path / "run", {"chunker": {"type": "x"}}, Registry())
        recording.event("something")
        recording.close()
    finally:
        os.umask(before)
    assert mode(tmp_path / "run") == 0o700
    modes = {path.name: mode(path) for path in (tmp_path / "run").rglob("*")}
    assert {"manifest.json", "events.jsonl"} <= modes.keys()
    assert {each & 0o077 for each in modes.values()} == {0}


async def test_all_that_a_run_stores_is_for_this_user(workplace: Any) -> None:
    before = os.umask(0)
    try:
        run = await workplace.ran(workplace.config(n=2))
    finally:
        os.umask(before)
    modes = {
        str(each.relative_to(run.store.path)): mode(each) for each in run.store.path.rglob("*")
    }
    assert {"episodes.jsonl", "credits/00000.jsonl", ".lock"} <= modes.keys()
    files = {name: each for name, each in modes.items() if (run.store.path / name).is_file()}
    assert {name: oct(each) for name, each in files.items() if each & 0o077} == {}


LATIN = "first: line\nsecond: caf\xe9\n".encode("latin-1")


def test_a_text_that_is_not_utf_8_is_refused_with_its_line_its_byte_and_what_to_do(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a b.txt"
    path.write_bytes(LATIN)
    said = f"""\
{path}:2: not UTF-8: byte 12 of the line is 0xe9
    hint      if it is WINDOWS-1252: iconv -f WINDOWS-1252 -t UTF-8 '{path}' > NEW"""
    with pytest.raises(InputError) as caught:
        read_text(path)
    assert str(caught.value) == said
    with pytest.raises(InputError, match=r"a b\.txt:8: not UTF-8: byte 2 of the line is 0xff"):
        decoded(b"a\xff", path, line=8)
    path.write_bytes("long".encode("utf-16"))
    with pytest.raises(InputError, match="iconv -f UTF-16"):
        read_text(path)
    with pytest.raises(InputError, match=r"nowhere: can't be read: No such file"):
        read_text(tmp_path / "nowhere")


def test_a_text_is_read_with_any_ends_of_lines(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("größer\r\nb\rc\n".encode())
    assert read_text(tmp_path / "a") == "größer\nb\nc\n"


def test_a_config_and_a_plugin_file_that_are_not_utf_8_are_refused_by_line(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_bytes(LATIN)
    with pytest.raises(InputError, match=r"c\.yaml:2: not UTF-8: byte 12"):
        load_config(tmp_path / "c.yaml", Registry())
    (tmp_path / "c.yaml").write_text("plugins: [p.py]\n")
    (tmp_path / "p.py").write_bytes(b"import ale\n\nNAME = 'caf\xe9'\n")
    with pytest.raises(InputError, match=r"p\.py:3: not UTF-8: byte 12 .*\n.*iconv"):
        load_config(tmp_path / "c.yaml", Registry())
    (tmp_path / "p.py").write_bytes(b"# -*- coding: latin-1 -*-\nNAME = 'caf\xe9'\n")
    with pytest.raises(InputError, match="registers nothing"):
        load_config(tmp_path / "c.yaml", Registry())


def test_an_error_names_what_was_to_be_written(tmp_path: Path) -> None:
    target = tmp_path / ("x" * 250)  # with what stands beside it meanwhile, too long
    with pytest.raises(OSError, match="too long") as caught, replacing(target, folder=True):
        pass
    assert caught.value.filename == str(target)
    with pytest.raises(FileNotFoundError) as caught, replacing(tmp_path / "site") as partial:
        (partial / "page.html").write_text("")
    assert caught.value.filename == str(tmp_path / "site/page.html")
