"""Notes: what the page shows of them, and how a request writes one."""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ale.errors import InputError
from ale.runs import Lines, Notes, RunReader, add_note
from ale.text import visible
from ale.types import Note, Verdict
from ale_look.inspect.report.gathering import Head
from ale_look.store.rows import epoch

MOST_BYTES = 128 << 10
"""Bytes of a request that writes a note."""
_SHORT = Annotated[str, Meta(max_length=100)]
_LONG = Annotated[str, Meta(max_length=20_000)]


class Asked(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The note that a request writes; the server says which id it has, and when it was written."""

    offset: int
    """That of the episode."""
    episode: str
    """The episode's id as the page shows it: another one may be at the offset by now."""
    turn: Annotated[int, Meta(ge=0)] | None = None
    label: _SHORT = ""
    comment: _LONG = ""
    verdict: Verdict | None = None
    by: _SHORT = ""
    id: str | None = None
    """That of the note whose place it takes; without label, comment and verdict it withdraws it."""


class _Began(msgspec.Struct, gc=False):
    """The fields of a stored episode that say which notes are on it."""

    id: str
    started_at: str = ""


def notes_of(run: RunReader, heads: Sequence[Head]) -> dict[str, Any]:
    """The notes on the run's episodes, and which line of their file is left out.

    Args:
        heads: of the episodes that are shown.
    """
    notes = run.notes
    by_id = {head.id: head for head in heads}
    named = [by_id[id] for id in dict.fromkeys(n.episode for n in notes) if id in by_id]
    found = [(note, head) for head in named for note in notes.of(_began(run, head))]
    rows = [
        {**msgspec.to_builtins(note), "offset": head.offset}
        for note, head in sorted(found, key=lambda each: each[0].at)
    ]
    return {"notes": rows, "problem": None if notes.problem is None else str(notes.problem)}


def _began(run: RunReader, head: Head) -> _Began:
    return Lines(run.episodes.path, _Began).at(head.offset)


def write_note(run: RunReader, heads: Sequence[Head], body: bytes) -> None:
    """Append the note that a request has in its body.

    Args:
        heads: as for `notes_of`.

    Raises:
        InputError: it is no note, says nothing, or is about what the run does not have.
        StoreError: it can't be written.
    """
    try:
        asked = msgspec.json.decode(body, type=Asked)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError.of(f"this is no note: {error}") from None
    head = next((head for head in heads if head.offset == asked.offset), None)
    if head is None or visible(head.id) != visible(asked.episode):
        message = f"no episode '{asked.episode}' at {asked.offset}"
        raise InputError.of(message, file=str(run.episodes.path))
    if asked.turn is not None and asked.turn >= head.turns:
        expected = f"less than {head.turns}"
        raise InputError.of(f"there is no turn {asked.turn}", path="turn", expected=expected)
    _check_place(run.notes, asked, head, run.path)
    # The clock of the machine that the episode ran on may be ahead of this one's.
    at = max(time.time(), epoch(_began(run, head).started_at))
    add_note(
        run.path,
        Note(
            id=asked.id or secrets.token_hex(8),
            at=at,
            episode=head.id,
            turn=asked.turn,
            label=asked.label.strip(),
            comment=asked.comment.strip(),
            verdict=asked.verdict,
            by=asked.by.strip(),
        ),
    )


def _check_place(notes: Notes, asked: Asked, head: Head, path: Path) -> None:
    """Raise `InputError` for one that takes no place, or says nothing for the first time."""
    if asked.id is not None:
        known = next((note for note in notes if note.id == asked.id), None)
        if known is None:
            message = "the note is not there: somebody has withdrawn it"
            raise InputError.of(message, file=str(path), path="id")
        if (known.episode, known.turn) != (head.id, asked.turn):
            raise InputError.of("the note is on another episode or turn", path="id")
    elif not (asked.label.strip() or asked.comment.strip() or asked.verdict):
        raise InputError.of("a note needs a label, a comment or a verdict")
