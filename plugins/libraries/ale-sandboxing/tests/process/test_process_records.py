"""Records are written atomically, found again, and name their owner."""

import asyncio
import fcntl
import json
import threading
from pathlib import Path

import pytest
from attrs import evolve, frozen

from ale.errors import SandboxError
from ale.workspaces import remove
from ale_sandboxing.process.claims import private
from ale_sandboxing.process.records import Record, Records
from ale_sandboxing.process.trees import remove_all, remove_small
from ale_sandboxing.shell.owner import Owner


@frozen(kw_only=True)
class Own(Record):
    extra: int


def record(id: str = "a", extra: int = 1) -> Own:
    owner = Owner.me()
    return Own(
        id=id, kind="sandbox", folder=f"/f/{id}", owner=owner, created=1.5, tags={}, extra=extra
    )


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    records = Records(tmp_path / "ale", "mine", Own)
    assert records.all() == []
    assert records.add(record("b"))
    assert records.add(record("a"))
    assert records.all() == [record("a"), record("b")]
    assert records.all()[0].owner.alive
    assert (tmp_path / "ale" / "mine").stat().st_mode & 0o777 == 0o700


def test_a_tag_is_taken_once(tmp_path: Path) -> None:
    records = Records(tmp_path / "ale", "mine", Own)
    assert records.add(record())
    assert not records.add(record(extra=2))
    assert records.all() == [record(extra=1)]


def test_a_record_is_replaced_and_dropped(tmp_path: Path) -> None:
    records = Records(tmp_path / "ale", "mine", Own)
    records.add(record())
    records.replace(evolve(record(), extra=9))
    assert [one.extra for one in records.all()] == [9]
    records.drop(record())
    records.drop(record())
    assert records.all() == []


def test_the_empty_record_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    records = Records(tmp_path / "ale", "mine", Own)
    records.sweep()
    records.add(record())
    started_at = records.folder / "00000000.json"
    started_at.write_text("")
    assert records.all() == [record()]
    with started_at.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        records.sweep()
        assert started_at.exists()
    records.sweep()
    assert not started_at.exists()
    assert records.all() == [record()]


def test_a_concurrent_sweep_removes_no_record(tmp_path: Path) -> None:
    records = Records(tmp_path / "ale", "mine", Own)
    done = threading.Event()

    def sweep() -> None:
        while not done.is_set():
            records.sweep()

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    for number in range(500):
        assert records.add(record(str(number)))
    done.set()
    sweeper.join()
    assert len(records.all()) == 500


def test_a_partial_file_is_removed_with_its_record(tmp_path: Path) -> None:
    records = Records(tmp_path / "ale", "mine", Own)
    records.add(record())
    (path,) = records.folder.glob("*.json")
    path.with_name(f".{path.name}.{record().owner.pid}.partial").write_text("{")
    assert records.all() == [record()]
    records.drop(record())
    assert list(records.folder.iterdir()) == []


@pytest.mark.parametrize("text", ["{", "{}", json.dumps({"owner": {"pid": 1}})])
def test_an_invalid_record_is_named(tmp_path: Path, text: str) -> None:
    records = Records(tmp_path / "ale", "mine", Own)
    records.add(record())
    (records.folder / "00000000.json").write_text(text)
    with pytest.raises(SandboxError, match=r"00000000\.json"):
        records.all()


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(SandboxError, match="not a folder of this user"):
        private(tmp_path / "link")
    (tmp_path / "real").chmod(0o755)
    private(tmp_path / "real")
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o700


def test_a_read_only_tree_is_removed(tmp_path: Path) -> None:
    inner = tmp_path / "tree" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    inner.chmod(0)
    inner.parent.chmod(0o500)
    remove(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    remove(tmp_path / "tree")


def test_a_small_tree_is_removed_at_once_and_a_large_one_is_left(tmp_path: Path) -> None:
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
        for number in range(3):
            (tmp_path / name / str(number)).touch()
    assert remove_small(tmp_path / "small", most=3)
    assert not (tmp_path / "small").exists()
    assert not remove_small(tmp_path / "large", most=2)
    assert (tmp_path / "large").exists()


async def test_the_event_loop_is_not_blocked_while_a_tree_is_removed(tmp_path: Path) -> None:
    """An rmdir may wait for the disk."""
    (tmp_path / "tree").mkdir()
    may_end, removed = threading.Event(), []

    def wait() -> None:
        assert may_end.wait(60)
        removed.append(not (tmp_path / "tree").exists())

    removal = asyncio.ensure_future(remove_all([tmp_path / "tree"], then=wait))
    await asyncio.sleep(0)
    assert not removal.done()
    may_end.set()
    await removal
    assert removed == [True]
