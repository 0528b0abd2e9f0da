"""Episodes with notes of which the text is found."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from ale.errors import AleError
from ale.runs import NOTES, RunReader
from ale.types import Note
from ale_look.store import schema
from ale_look.store.rows import plain

Excerpt = dict[str, Any]
_Parts = list[list[Any]]


def noted(
    connection: Connection, runs: Iterable[Path], parts_of: Callable[[str], _Parts | None]
) -> dict[int, list[Excerpt]]:
    """The excerpts of notes, by the numbers of their episodes in the database.

    Args:
        parts_of: the part of a text with what is looked for, or None.
    """
    found: dict[int, list[Excerpt]] = {}
    for run in runs:
        hits: dict[str, list[tuple[Note, _Parts]]] = {}
        for note in _notes(run):
            if parts := parts_of(f"{note.label}\n{note.comment}".strip()):
                hits.setdefault(plain(note.episode), []).append((note, parts))
        for number, episode, started in _episodes(connection, run, hits):
            made = [
                {"turn": note.turn, "note": True, "parts": parts}
                for note, parts in hits[episode]
                if note.at >= started
            ]
            if made:
                found[number] = made
    return found


def _notes(run: Path) -> Iterable[Note]:
    if not (run / NOTES).exists():
        return ()
    try:
        return RunReader(run).notes
    except AleError:
        return ()  # the pages of the run say what is damaged


def _episodes(
    connection: Connection, run: Path, ids: Iterable[str]
) -> Iterable[tuple[int, str, float]]:
    """Number, id and start of the stored episodes with these ids."""
    episodes, wanted = schema.episodes.c, [*ids]
    if not wanted:
        return ()
    query = select(episodes.id, episodes.episode_id, episodes.started)
    of_run = select(schema.runs.c.id).where(schema.runs.c.path == str(run))
    query = query.where(episodes.run.in_(of_run), episodes.episode_id.in_(wanted))
    return [(row[0], row[1], row[2]) for row in connection.execute(query)]
