"""An archive is the run, byte by byte, or the run stays."""

import gzip
import hashlib
import io
import os
import random
import stat
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale.errors import InputError, NotUsableError, StoreError
from ale.runs import NOTES, RunReader, add_note, lock
from ale.types import Note
from ale_look.store import archiving
from ale_look.store.archiving import archive, archives_in, restore
from ale_look.store.removing import held, remove, size_of

archives = pytest.mark.skipif(
    not hasattr(tarfile, "data_filter"), reason="archives need Python 3.11.4 or later"
)


def content(run: Path) -> dict[str, str]:
    """Every file, folder and link of a run but for its locks; of notes, an empty file is one."""
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "folder"
    found.pop(".lock", None)
    if (notes := run / NOTES).exists() and not notes.stat().st_size:
        del found[NOTES]
    return found


@pytest.fixture
def run(folder: Path) -> Path:
    """A run with everything that a run may have."""
    path = folder / "first"
    (path / "checkpoints" / "00001").mkdir(parents=True)
    (path / "checkpoints" / "00001" / "weights.bin").write_bytes(
        random.Random(0).randbytes(300_000)
    )
    (path / "empty").mkdir()
    (path / "link").symlink_to("checkpoints/00001")
    (path / "again.bin").hardlink_to(path / "checkpoints" / "00001" / "weights.bin")
    (path / ("long" * 40)).write_text("äöü\0")
    (path / "none").write_text("")
    return path


def test_a_python_that_can_not_restore_safely_neither_archives_nor_restores(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11.2, Debian 12's own, can't check what an archive would write."""
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    for refused in (
        lambda: archive(run, run.parent),
        lambda: restore(run.parent / "a.tar.gz", run.parent),
    ):
        with pytest.raises(NotUsableError, match=r"archives need Python 3\.11\.4"):
            refused()
    assert [path.name for path in run.parent.iterdir()] == [run.name]


@archives
def test_an_archive_is_restored_to_the_same_run(run: Path, tmp_path: Path) -> None:
    before = content(run)
    assert len(before) > 10
    target = archive(run, tmp_path / "archives")
    assert not run.exists()
    assert list(run.parent.iterdir()) == []
    again = restore(target, tmp_path / "elsewhere")
    assert again == tmp_path / "elsewhere" / "first"
    assert content(again) == before
    assert target.exists()
    assert len(list(RunReader(again).episodes)) == 3


NOTE = Note(id="a", at=9e9, episode="e", comment="odd")


@archives
def test_a_note_is_in_the_archive_or_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes one while the run is archived waits, and is told that the run is gone."""
    refused = []

    def write() -> None:
        with pytest.raises(StoreError, match="No such file") as raised:
            add_note(run, NOTE)
        refused.append(raised.value)

    writer = threading.Thread(target=write)

    def removed(path: Path) -> None:
        writer.start()
        writer.join(0.2)
        remove(path)

    add_note(run, NOTE)
    monkeypatch.setattr(archiving, "remove", removed)
    archived = archive(run, run.parent)
    writer.join()  # before there is a run of this name again
    again = restore(archived, run.parent)
    assert ([*RunReader(again).notes], len(refused)) == ([NOTE], 1)


@archives
def test_what_was_private_or_old_is_so_again(run: Path, tmp_path: Path) -> None:
    run.chmod(0o755)  # as others have made it
    (run / "none").chmod(0o600)
    os.utime(run / "none", (1e9, 1e9))
    again = restore(archive(run, tmp_path), tmp_path)
    kept = (again / "none").stat()
    assert (stat.filemode(kept.st_mode), kept.st_mtime) == ("-rw-------", 1e9)
    assert stat.filemode(again.stat().st_mode) == "drwx------"


@archives
def test_an_archive_names_its_run(run: Path) -> None:
    archive(run, run.parent, keep=True)
    assert run.exists()
    (run.parent / "other.tar.gz").write_text("no archive")
    assert [(path.name, of["run_id"]) for path, of in archives_in(run.parent)] == [
        ("first.tar.gz", "first")
    ]


@archives
def test_a_run_that_was_archived_already_is_only_removed(run: Path) -> None:
    target = archive(run, run.parent, keep=True)
    written = target.stat().st_mtime_ns
    archive(run, run.parent)
    assert target.stat().st_mtime_ns == written
    assert not run.exists()


@archives
@pytest.mark.parametrize(
    "change",
    [
        lambda run: (run / "none").write_text("changed"),
        lambda run: (run / "new").write_text(""),
        lambda run: (run / "none").unlink(),
    ],
)
def test_another_archive_of_the_name_is_not_overwritten(
    run: Path, change: Callable[[Path], object]
) -> None:
    target = archive(run, run.parent, keep=True)
    before = target.read_bytes()
    change(run)
    with pytest.raises(InputError, match="not of the run as it is now"):
        archive(run, run.parent)
    assert run.exists()
    assert target.read_bytes() == before


@archives
def test_a_run_that_is_being_written_is_neither_archived_nor_removed(run: Path) -> None:
    before = content(run)
    descriptor = lock(run)
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        archive(run, run.parent)
    with pytest.raises(StoreError, match="in use"), held(run):
        remove(run)
    os.close(descriptor)
    assert content(run) == before


@archives
def test_a_link_to_a_run_is_not_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    with pytest.raises(InputError, match="a link to a run directory"):
        archive(tmp_path / "link", tmp_path)
    assert run.exists()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    with pytest.raises(InputError, match="not a run directory"), held(tmp_path / "precious"):
        remove(tmp_path / "precious")
    assert (tmp_path / "precious").exists()


@archives
@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret"])
def test_a_run_that_could_not_be_restored_is_not_archived(run: Path, target: str) -> None:
    (run / "kept").symlink_to(target)
    with pytest.raises(InputError, match=r"first/kept: it could not be restored safely"):
        archive(run, run.parent)
    assert run.exists()
    assert not list(run.parent.glob("*.tar.gz"))


@archives
def test_a_pipe_is_named(run: Path) -> None:
    os.mkfifo(run / "pipe")
    with pytest.raises(InputError, match="first/pipe: a device or a pipe"):
        archive(run, run.parent)
    assert run.exists()


@archives
def test_an_archive_that_differs_from_the_run_is_not_kept(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that writes something else: the comparison must see every kind of difference."""
    plain = tarfile.TarFile.addfile

    def damaged(self: tarfile.TarFile, entry: tarfile.TarInfo, file: Any = None) -> None:
        if entry.name.endswith("weights.bin"):
            file = io.BytesIO(b"\0" * entry.size)
        plain(self, entry, file)

    monkeypatch.setattr(tarfile.TarFile, "addfile", damaged)
    with pytest.raises(StoreError, match=r"weights.bin differs in the archive"):
        archive(run, run.parent)
    assert run.exists()
    assert not list(run.parent.glob("*.tar.gz*"))


@archives
def test_an_archive_that_appears_meanwhile_is_not_overwritten(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process archives a run of this name from elsewhere at the same time."""
    target, others = run.parent / "first.tar.gz", run.parent / ".first.tar.gz.partial"
    others.write_text("of another process")
    plain = tarfile.TarFile.addfile

    def meanwhile(self: tarfile.TarFile, entry: tarfile.TarInfo, file: Any = None) -> None:
        target.write_text("another")
        plain(self, entry, file)

    monkeypatch.setattr(tarfile.TarFile, "addfile", meanwhile)
    with pytest.raises(InputError, match="appeared meanwhile"):
        archive(run, run.parent)
    assert (target.read_text(), others.read_text()) == ("another", "of another process")
    assert sorted(path.name for path in run.parent.iterdir()) == [others.name, "first", target.name]


@archives
def test_the_name_of_an_archive_is_on_the_disk_before_its_run_is_removed(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, plain = [], os.fsync

    def fsync(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").resolve() == tmp_path / "archives":
            synced.append(run.exists())
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    target = archive(run, tmp_path / "archives", keep=True)
    archive(run, target.parent)
    assert (synced, run.exists()) == ([True, True], False)


@archives
def test_damage_anywhere_in_an_archive_is_found(run: Path, tmp_path: Path) -> None:
    target = archive(run, tmp_path / "archives", keep=True)
    whole = target.read_bytes()
    rng = random.Random(1)
    for number in range(25):
        at = rng.randrange(10, len(whole))  # after the header, which has a name and a time
        changed = whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :]
        damaged = changed if number % 2 else whole[:at]
        target.write_bytes(damaged)
        with pytest.raises(InputError):
            restore(target, tmp_path / "elsewhere")
        assert not (tmp_path / "elsewhere" / "first").exists()
        assert not list((tmp_path / "elsewhere").iterdir())


@archives
def test_an_archive_can_not_write_outside_its_run(tmp_path: Path) -> None:
    path = tmp_path / "evil.tar.gz"
    with gzip.open(path, "wb") as stream, tarfile.open(fileobj=stream, mode="w:") as tar:
        for name in ("evil/manifest.json", "../outside", "/outside"):
            data = b'{"run_id": "evil"}'
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    with pytest.raises(InputError, match="it holds what no run has"):
        restore(path, tmp_path / "inner" / "runs")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["evil.tar.gz", "inner", "runs"]


@archives
def test_an_archive_of_something_else_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "other.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo("other/manifest.json")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"{}"))
    with pytest.raises(InputError, match=r"manifest\.json"):
        restore(path, tmp_path / "runs")
    assert not list((tmp_path / "runs").iterdir())


def test_the_size_of_a_run_is_that_of_its_own_files(run: Path) -> None:
    before = size_of(run)
    (run / "elsewhere").symlink_to("nowhere")
    (run / "more").write_text("12345")
    assert size_of(run) == before + len("nowhere") + 5


@archives
def test_a_run_that_is_there_is_not_overwritten(run: Path) -> None:
    target = archive(run, run.parent, keep=True)
    with pytest.raises(InputError, match="is there already"):
        restore(target, run.parent)


def test_what_a_killed_process_left_is_no_run_and_is_removed(run: Path) -> None:
    left = run.parent / ".first.deleted"
    left.mkdir()
    (left / "manifest.json").write_text("{}")
    with held(run):
        remove(run)
    assert not left.exists()
    assert not run.exists()


ARCHIVE = """
import sys
from pathlib import Path
from ale_look.store.archiving import archive

print("open", flush=True)
archive(Path(sys.argv[1]), Path(sys.argv[1]).parent)
"""


@archives
def test_a_kill_at_any_time_leaves_the_run_or_its_archive(run: Path, tmp_path: Path) -> None:
    before, rng = content(run), random.Random(2)
    target = run.parent / "first.tar.gz"
    for _ in range(6):
        command = [sys.executable, "-c", ARCHIVE, str(run)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.random() * 0.1)
        process.kill()
        process.wait()
        process.stdout.close()
        if run.exists():
            assert content(run) == before
        else:
            again = restore(target, tmp_path / "again")
            assert content(again) == before
            again.rename(run)
        target.unlink(missing_ok=True)
