"""Entries of servers come, are renewed, and expire."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from ale_servers.channel import MARKER, WeightFolder, files_of
from ale_servers.protocol import WeightsError
from ale_servers.records import Entry
from ale_servers.registry import Addresses, FolderRegistry, namesake, own_entry, registered


def aged(file: Path, seconds: float) -> None:
    then = file.stat().st_mtime - seconds
    os.utime(file, (then, then))


def test_an_address_may_be_that_of_the_chat_api() -> None:
    (entry,) = Addresses(["http://127.0.0.1:8000/v1/"]).entries()
    assert entry.url == "http://127.0.0.1:8000"


def test_a_registry_in_a_folder_is_called_by_it_in_messages(tmp_path: Path) -> None:
    assert str(FolderRegistry(tmp_path)) == str(tmp_path)


def test_an_entry_that_is_not_renewed_expires(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path / "servers", expiry_s=15)
    for name in ("killed", "alive"):
        registry.add(Entry(url=f"http://{name}", name=name))
    aged(tmp_path / "servers/killed.json", 16)
    assert [entry.name for entry in registry.entries()] == ["alive"]


async def test_a_server_is_there_while_it_runs(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    entry = own_entry("http://127.0.0.1:1/v1", "a/b")
    async with registered(registry, entry, beat_s=0.02):
        assert registry.entries() == [entry]
        (file,) = tmp_path.glob("*.json")
        aged(file, 100)
        await asyncio.sleep(0.2)
        assert registry.entries() == [entry], "it was not renewed"
        file.unlink()
        await asyncio.sleep(0.2)
        assert registry.entries() == [entry], "it was removed and did not come back"
    assert registry.entries() == []


def test_a_server_does_not_renew_the_entry_of_another_with_its_name(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    first, other = (Entry(url=f"http://{url}", name="a") for url in ("first", "other"))
    registry.add(first)
    registry.add(other)
    aged(tmp_path / "a.json", 10)
    registry.renew(first)
    assert registry.entries() == [other]
    aged(tmp_path / "a.json", 10)
    assert registry.entries() == [], "one that was killed is renewed by the other"
    registry.renew(first)
    assert registry.entries() == [first]


def test_a_name_is_taken_while_a_server_of_this_machine_has_it(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    mine = own_entry("http://mine", "a/b")
    assert namesake(registry, mine) is None
    for host, pid in (("elsewhere", os.getppid()), (mine.host, mine.pid)):
        registry.add(Entry(url="http://x", name="a_b", host=host, pid=pid))
        assert namesake(registry, mine) is None
    other = Entry(url="http://x", name="a_b", host=mine.host, pid=os.getppid())
    registry.add(other)
    assert namesake(registry, mine) == other


class SlowRegistry(FolderRegistry):
    """A renewal that has begun lasts until it may end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.begun, self.may_end = threading.Event(), threading.Event()

    def renew(self, entry: Entry) -> None:
        self.begun.set()
        assert self.may_end.wait(60)
        super().renew(entry)


async def test_a_renewal_in_progress_does_not_bring_an_entry_back(tmp_path: Path) -> None:
    registry = SlowRegistry(tmp_path)
    loop = asyncio.get_running_loop()
    async with registered(registry, own_entry("http://127.0.0.1:1", "a"), beat_s=0.01):
        assert await asyncio.to_thread(registry.begun.wait, 60)
        loop.call_later(0.2, registry.may_end.set)
    await loop.shutdown_default_executor()
    assert registry.entries() == []


async def test_an_entry_that_can_not_be_removed_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = FolderRegistry(tmp_path)
    async with registered(registry, own_entry("http://127.0.0.1:1", "a")):
        (tmp_path / "a.json").unlink()
        (tmp_path / "a.json").mkdir()
    assert "the entry a could not be removed" in caplog.text


def test_a_file_that_is_no_entry_is_passed_over(tmp_path: Path) -> None:
    registry = FolderRegistry(tmp_path)
    (tmp_path / "half.json").write_text('{"url": "http')
    registry.add(Entry(url="http://a", name="a"))
    assert [entry.name for entry in registry.entries()] == ["a"]


def write(text: str, folder: Path) -> str:
    (folder / "model.safetensors").write_text(text)
    return text * 8


def test_published_weights_are_whole_and_the_older_ones_go(tmp_path: Path) -> None:
    channel = WeightFolder(tmp_path, keep=2)
    made = [channel.publish(n, lambda folder, n=n: write(str(n), folder)) for n in (8, 9, 10, 11)]  # type: ignore[misc]
    assert [file.read_text() for file in files_of(made[-1])] == ["11"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["v00000010", "v00000011"]
    with pytest.raises(WeightsError, match="no published weights"):
        files_of(made[0])


def test_a_version_below_the_stored_ones_stays(tmp_path: Path) -> None:
    """After a resumption from an older checkpoint."""
    channel = WeightFolder(tmp_path, keep=2)
    for n in (8, 9):
        channel.publish(n, lambda folder: write("x", folder))
    assert files_of(channel.publish(5, lambda folder: write("y", folder)))


def test_a_folder_without_its_marker_is_not_read(tmp_path: Path) -> None:
    made = WeightFolder(tmp_path).publish(1, lambda folder: write("x", folder))
    (Path(made.folder) / MARKER).unlink()
    with pytest.raises(WeightsError, match="no published weights"):
        files_of(made)


def test_a_failed_writer_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> str:
        write("x", folder)
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        WeightFolder(tmp_path).publish(1, fail)
    assert list(tmp_path.iterdir()) == []
