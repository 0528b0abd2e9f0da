"""Records of sandboxes next to their pipe folders."""

from pathlib import Path

from ale_sandbox_container.records import Folders, Record
from ale_sandbox_shell.owner import Owner


def _record(id: str) -> Record:
    return Record(id=id, kind="sandbox", owner=Owner.me(), created=0.0)


def test_an_id_is_claimed_once(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "ale" / "docker")
    assert folders.claim(_record("one"))
    assert not folders.claim(_record("one"))
    assert folders.all() == [_record("one")]
    folders.drop("one")
    assert folders.claim(_record("one"))


def test_nothing_but_records_is_left_by_claims(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "docker")
    for id in ("one", "two", "one"):
        folders.claim(_record(id))
    assert sorted(path.name for path in folders.root.iterdir()) == ["one.json", "two.json"]


def test_what_was_killed_while_it_claimed_is_no_record_and_is_swept(tmp_path: Path) -> None:
    folders = Folders(tmp_path / "docker")
    folders.claim(_record("one"))
    (folders.root / "two.json").touch()
    assert folders.all() == [_record("one")]
    folders.sweep()
    assert [path.name for path in folders.root.iterdir()] == ["one.json"]
