"""Episodes with notes of which the text is found. The database has no notes: they are read anew."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from attrs import evolve
from sqlalchemy import Connection, select

from ale.errors import AleError
from ale.runs import NOTES, RunReader
from ale.types import Note
from ale_look.store import schema
from ale_look.store.finding import Filters, pattern_of, phrases_of
from ale_look.store.listing import chosen_runs
from ale_look.store.patterns import compiled, split_pattern
from ale_look.store.rows import plain

T = TypeVar("T")
Patterns = Sequence[re.Pattern[str]]


def with_notes(
    connection: Connection, filters: Filters, report: Callable[[str], object]
) -> Filters:
    """Filters that episodes pass too of which a note has the text; `report` as in `noted`."""
    return evolve(filters, also=[*noted(connection, filters, _have_all, report)])


def _have_all(text: str, patterns: Patterns) -> bool:
    return all(each.search(text) for each in patterns)


def noted(
    connection: Connection,
    filters: Filters,
    look: Callable[[str, Patterns], T | None],
    report: Callable[[str], object],
) -> Mapping[int, Sequence[tuple[Note, T]]]:
    """The notes that have `Filters.text`, by the numbers of their episodes in the database.

    A note is found as a turn is: with all the words and the regular expression.

    Args:
        filters: of these, the text and the runs.
        look: what there is in the text of a note; nothing unless all patterns are.
        report: called with what can't be read.

    Raises:
        InputError: the text has no word, or no regular expression.
    """
    words, pattern = split_pattern(filters.text or "")
    patterns = [pattern_of(each) for each in phrases_of(words)]
    patterns += [] if pattern is None else [compiled(pattern)]
    if not patterns:
        return {}
    found: dict[int, list[tuple[Note, T]]] = {}
    for run, path in _runs(connection, filters):
        hits: dict[str, list[tuple[Note, T]]] = {}
        for note in _notes(path, report):
            if there := look(f"{note.label}\n{note.comment}".strip(), patterns):
                hits.setdefault(plain(note.episode), []).append((note, there))
        for number, episode, started in _episodes(connection, run, hits):
            if made := [(note, there) for note, there in hits[episode] if note.at >= started]:
                found[number] = made
    return found


def _runs(connection: Connection, filters: Filters) -> Iterable[tuple[int, Path]]:
    runs = schema.runs.c
    query = select(runs.id, runs.path).where(chosen_runs(filters.of))
    return [(number, Path(path)) for number, path in connection.execute(query)]


def _notes(run: Path, report: Callable[[str], object]) -> Iterable[Note]:
    if not (run / NOTES).exists():
        return ()
    try:
        return RunReader(run).notes
    except AleError as error:
        report(f"notes left out: {error}")
        return ()


def _episodes(
    connection: Connection, run: int, ids: Iterable[str]
) -> Iterable[tuple[int, str, float]]:
    """Number, id and start of the stored episodes with these ids."""
    episodes, wanted = schema.episodes.c, [*ids]
    if not wanted:
        return ()
    query = select(episodes.id, episodes.episode_id, episodes.started)
    query = query.where(episodes.run == run, episodes.episode_id.in_(wanted))
    return [(row[0], row[1], row[2]) for row in connection.execute(query)]
