"""Notes beside a run: of each the last line counts, and writers wait for each other."""

import fcntl
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ale._store import Redactor, RunDirectory, RunReader
from ale.errors import InputError, StoreError
from ale.runs import NOTES, add_note, hold_notes
from ale.testing.builders import episode
from ale.types import Note, replace

WRITE = """\
import sys
from pathlib import Path
from ale.runs import NOTES, add_note, hold_notes
from ale.types import Note
for n in range(int(sys.argv[3])):
    note = Note(id=f"{sys.argv[2]}-{n}", at=1.0, episode="e", comment="x" * 3000)
    add_note(Path(sys.argv[1]), note)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run without notes."""
    manifest = {"run_id": "run", "n_tasks": 0, "config": {}}
    RunDirectory.create(tmp_path / "run", manifest, Redactor({})).close()
    return tmp_path / "run"


def note(id: str = "a", **fields: object) -> Note:
    return replace(Note(id=id, at=10.0, episode="0-demo-0", comment="odd"), **fields)


def test_of_several_lines_with_an_id_the_last_counts(run: Path) -> None:
    assert list(RunReader(run).notes) == []
    first, other, again = note(), note("b", turn=2, label="hack"), note(verdict="good", at=11.0)
    for each in (first, other, again):
        add_note(run, each)
    assert list(RunReader(run).notes) == [again, other]
    add_note(run, replace(other, label="", comment="", verdict=None))
    found = RunReader(run).notes
    assert (list(found), len(found), found["a"], found.problem) == ([again], 1, again, None)
    assert len((run / "notes.jsonl").read_text().splitlines()) == 4, "nothing is overwritten"
    assert (run / "notes.jsonl").stat().st_mode & 0o077 == 0


def test_an_incomplete_last_line_is_named_and_the_next_note_takes_its_place(run: Path) -> None:
    add_note(run, note())
    with (run / "notes.jsonl").open("ab") as file:
        file.write(b'{"schema":1,"id":"b","at":1')
    found = RunReader(run).notes
    assert [each.id for each in found] == ["a"]
    assert f"{run / 'notes.jsonl'}:2" in str(found.problem)
    add_note(run, note("c"))
    found = RunReader(run).notes
    assert ([each.id for each in found], found.problem) == (["a", "c"], None)


@pytest.mark.parametrize(
    ("line", "said"),
    [("{", "truncated"), ('{"schema":2,"id":"b","at":1,"episode":"e"}', "schema 2")],
)
def test_a_damaged_line_is_an_error_with_its_place(run: Path, line: str, said: str) -> None:
    add_note(run, note())
    with (run / "notes.jsonl").open("a") as file:
        file.write(f"{line}\n")
    add_note(run, note("c"))
    with pytest.raises(InputError, match=said) as raised:
        _ = RunReader(run).notes
    assert f"{run / 'notes.jsonl'}:2" in str(raised.value)


def test_a_writer_waits_for_another_one(run: Path) -> None:
    add_note(run, note())
    writer = threading.Thread(target=add_note, args=(run, note("b")))
    with (run / "notes.jsonl").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert len(RunReader(run).notes) == 1
    writer.join()
    assert len(RunReader(run).notes) == 2


def test_a_writer_does_not_wait_for_ever(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_note(run, note())
    monkeypatch.setattr("ale._store.shared._PATIENCE_S", 0.05)
    with (run / "notes.jsonl").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="locked by another process"):
            add_note(run, note("b"))


@pytest.mark.parametrize("before", [0, 1])
def test_nobody_writes_while_notes_are_held(run: Path, before: int) -> None:
    for n in range(before):
        add_note(run, note(f"{n}"))
    writer = threading.Thread(target=add_note, args=(run, note("b")))
    with hold_notes(run):
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
    writer.join()
    assert len(RunReader(run).notes) == before + 1


def test_notes_that_were_held_leave_no_file(run: Path) -> None:
    with hold_notes(run):
        pass
    assert not (run / NOTES).exists()


@pytest.mark.parametrize("before", [0, 1])
def test_who_waits_is_told_that_the_run_is_gone(run: Path, before: int) -> None:
    told = []

    def write() -> None:
        with pytest.raises(StoreError) as raised:
            add_note(run, note("b"))
        told.append(str(raised.value))

    for n in range(before):
        add_note(run, note(f"{n}"))
    writer = threading.Thread(target=write)
    with hold_notes(run):
        writer.start()
        writer.join(0.2)
        shutil.rmtree(run)
    writer.join()
    assert f"{run / NOTES} can't be written" in told[0]


def test_two_processes_that_write_at_once_lose_nothing(run: Path) -> None:
    n = 50
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITE, str(run), name, str(n)]) for name in "ab"
    ]
    assert [each.wait() for each in writers] == [0, 0]
    found = RunReader(run).notes
    assert {each.id for each in found} == {f"{name}-{i}" for name in "ab" for i in range(n)}


def test_a_note_on_a_running_run_is_written_while_it_runs(run: Path) -> None:
    store = RunDirectory.resume(run, Redactor({}))
    add_note(run, note())
    store.add_episode(episode())
    store.close()
    assert len(RunReader(run).notes) == 1


def test_what_leads_elsewhere_is_not_written_to(run: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("half a line")
    (run / "notes.jsonl").symlink_to(tmp_path / "other")
    with pytest.raises(StoreError, match=r"notes\.jsonl can't be written"):
        add_note(run, note())
    assert (tmp_path / "other").read_text() == "half a line"


def test_secrets_are_masked_and_values_checked(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-0123456789abcdef")
    add_note(run, note(comment="it printed sk-0123456789abcdef"))
    assert json.loads((run / "notes.jsonl").read_text())["comment"] == "it printed ***"
    with pytest.raises(InputError, match="great"):
        add_note(run, note("b", verdict="great"))
    assert len(RunReader(run).notes) == 1


def test_a_note_on_an_earlier_episode_with_the_id_is_not_on_this_one(run: Path) -> None:
    made = replace(episode(), started_at="1970-01-01T00:01:40+00:00")
    add_note(run, note(episode=made.id, at=99.0, verdict="good"))
    add_note(run, note("b", episode=made.id, at=101.0, verdict="bad"))
    add_note(run, note("c", episode="another", at=102.0, verdict="good"))
    add_note(run, note("d", episode=made.id, at=102.0, turn=0, verdict="good"))
    notes = RunReader(run).notes
    assert [each.id for each in notes.of(made)] == ["b", "d"]
    assert notes.verdicts(made) == {"bad"}, "that of a turn is none of the episode"
    assert notes.verdicts(replace(made, started_at="")) == {"good", "bad"}
    assert notes.verdicts(replace(made, id="none")) == set()
