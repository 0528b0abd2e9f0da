"""``notes.jsonl``: what people say of a run's episodes; several programs may write it at once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from ale._store.lines import Lines
from ale._store.shared import append_record, is_there, locked
from ale.errors import Problem
from ale.files import open_file
from ale.types import Note, Verdict

FILE = "notes.jsonl"


class _Identified(Protocol):
    """An episode, or the part of one that says which it is."""

    @property
    def id(self) -> str: ...

    @property
    def started_at(self) -> str: ...


class Notes:
    """The notes on a run that count: each once, as it was written last, without withdrawn ones."""

    def __init__(self, notes: dict[str, Note], problem: Problem | None = None) -> None:
        """Use `RunReader.notes`."""
        self.problem = problem
        """Names the last line of the file if that is incomplete, and so left out."""
        self._notes = notes
        self._by_episode: dict[str, list[Note]] = {}
        for note in notes.values():
            self._by_episode.setdefault(note.episode, []).append(note)

    def __iter__(self) -> Iterator[Note]:
        """In the order in which they were first written."""
        return iter(self._notes.values())

    def __len__(self) -> int:
        return len(self._notes)

    def __getitem__(self, id: str) -> Note:
        """The note with an id; a KeyError if there is none."""
        return self._notes[id]

    def of(self, episode: _Identified) -> list[Note]:
        """The notes on one episode and its turns; one on an earlier episode with its id is none."""
        began = _epoch(episode.started_at)
        return [note for note in self._by_episode.get(episode.id, ()) if note.at >= began]

    def verdicts(self, episode: _Identified) -> set[Verdict]:
        """The verdicts on an episode as a whole: one, none, or both if people disagree."""
        found = (note.verdict for note in self.of(episode) if note.turn is None)
        return {verdict for verdict in found if verdict is not None}


def _epoch(text: str) -> float:
    """Seconds of a time as an episode has it; 0 if it has none."""
    with suppress(ValueError):
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return 0.0


def read_notes(run: Path) -> Notes:
    """The notes beside a run.

    Raises:
        InputError: a line is damaged, and not only incomplete at the end.
    """
    path, found, lines = run / FILE, dict[str, Note](), 0
    for note in Lines(path, Note):
        lines += 1
        if note.withdrawn:
            found.pop(note.id, None)
        else:
            found[note.id] = note
    if _is_whole(path):
        return Notes(found)
    message = "the line is incomplete, so it is left out; the next note takes its place"
    return Notes(found, Problem(message=message, file=str(path), line=lines + 1))


def _is_whole(path: Path) -> bool:
    """Does the file, if there is one, end with a whole line?"""
    if not path.exists():
        return True
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read(1) in (b"", b"\n")


def add_note(run: str | os.PathLike[str], note: Note) -> None:
    """Append a note to the file beside a run, on the disk when this returns.

    Other processes may append at the same time. Values of secret environment variables are masked,
    as in all files of a run.

    Args:
        run: the run's directory.

    Raises:
        InputError: the note has a value that can't be read back.
        StoreError: it can't be written.
    """
    append_record(Path(run) / FILE, note)


@contextmanager
def hold_notes(run: Path) -> Iterator[None]:
    """Inside the block, no process writes notes on the run, which may be removed there.

    Who waits to write one meanwhile then writes it, or is told that the run is gone.

    Raises:
        StoreError: another process keeps writing.
    """
    with locked(run / FILE) as descriptor:
        try:
            yield
        finally:
            if not os.fstat(descriptor).st_size and is_there(run / FILE, descriptor):
                (run / FILE).unlink()  # it was made to be locked
