"""Episodes of all runs that pass filters, with the turns in which the words stand."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, get_args

from attrs import evolve
from sqlalchemy import Connection, select

from ale.errors import InputError
from ale.text import shorten, visible
from ale_look.store import schema
from ale_look.store.finding import Filters, check_names, find, pattern_of, phrases_of
from ale_look.store.listing import Order
from ale_look.store.noted import noted
from ale_look.store.patterns import compiled, split_pattern, time_limit
from ale_look.view.catalog import Catalog

MOST = 500
"""Episodes of one answer."""
_AROUND = 90
"""Characters of an excerpt before and after the first word."""
_WORDS = ("prompt", "task", "model", "split", "stop", "tool", "tool_failed", "error", "failed")
_NUMBERS: Mapping[str, type[int] | type[float]] = {
    "step": int,
    "min_reward": float,
    "max_reward": float,
    "after": float,
    "before": float,
}
_PROMPT = 120
_EXCERPTS = 3
"""Excerpts of one episode."""
PATIENCE_S = 5.0
"""Seconds for which episodes are matched against a regular expression."""
_MATCHES = 200
"""Matches of one turn that an excerpt is chosen from."""


def search(catalog: Catalog, asked: Mapping[str, str]) -> dict[str, Any]:
    """The first episodes that pass.

    Args:
        asked: as in the address: the names of `Filters`, ``q`` for its text, ``run`` for the key
            of a run, ``order`` and ``limit``.

    Raises:
        InputError: a value is none of its kind.
    """
    words, limit = asked.get("q", "").strip(), _limit(asked)
    order = _order(asked.get("order") or "newest")
    filters = _filters(catalog, asked, words)
    # What has not been read yet may have the name.
    reading = catalog.reading
    with catalog.database.reading() as connection, time_limit(PATIENCE_S) as limit_of_time:
        if not reading:
            check_names(connection, filters)
        notes = _notes(connection, filters)
        filters = evolve(filters, also=[*notes])
        rows = find(connection, filters, order, limit + 1)
        more = len(rows) > limit
        excerpts = _excerpts(connection, [row["id"] for row in rows[:limit]], words)
    keys = {str(path): key for key, path in catalog.find().items()}
    for number, made in notes.items():
        excerpts[number] = [*made, *excerpts.get(number, ())][:_EXCERPTS]
    found = [_row(row, keys, excerpts) for row in rows[:limit] if row["path"] in keys]
    # `partly`: the episodes after these were not looked at.
    return {"rows": found, "more": more, "reading": reading, "partly": limit_of_time.over}


def _notes(connection: Connection, filters: Filters) -> dict[int, list[dict[str, Any]]]:
    """By episode, the parts of notes with all the words and the regular expression."""
    # The pages of a run say what is damaged of it.
    found = noted(connection, filters, _excerpt, lambda _: None)
    return {
        number: [{"turn": note.turn, "note": True, "parts": parts} for note, parts in notes]
        for number, notes in found.items()
    }


def _limit(asked: Mapping[str, str]) -> int:
    wanted = _number("limit", asked, int)
    if wanted is not None and wanted < 1:
        raise InputError.of("expected a number of at least 1", path="limit")
    return min(wanted or 50, MOST)


def _order(text: str) -> Order:
    known: Sequence[Order] = get_args(Order)
    for each in known:
        if each == text:
            return each
    raise InputError.of(f"unknown order '{text}'", path="order", expected=", ".join(known))


def _filters(catalog: Catalog, asked: Mapping[str, str], words: str) -> Filters:
    given: dict[str, Any] = {name: asked[name] for name in _WORDS if asked.get(name)}
    given |= {name: _number(name, asked, kind) for name, kind in _NUMBERS.items()}
    if asked.get("broken") in ("0", "1"):
        given["broken"] = asked["broken"] == "1"
    of = catalog.filters
    if asked.get("run"):
        of = type(of)(paths=[str(catalog.path(asked["run"]))])
    return Filters(of=of, text=words or None, **given)


def _number(name: str, asked: Mapping[str, str], kind: type[int] | type[float]) -> Any:
    text = asked.get(name, "").strip()
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise InputError.of(f"'{text}' is no number", path=name) from None


def _row(
    row: Mapping[str, Any], keys: Mapping[str, str], excerpts: Mapping[int, Sequence[Any]]
) -> dict[str, Any]:
    same = ("run_id", "episode_id", "task_id", "split", "step", "reward", "model", "stop")
    counts = ("n_turns", "n_calls", "n_errors", "started", "seconds")
    return {
        "key": keys[row["path"]],
        "offset": row["line_at"],
        **{name: row[name] for name in (*same, *counts)},
        "prompt": shorten(row["prompt"], _PROMPT),
        "excerpts": excerpts.get(row["id"], []),
    }


def _excerpts(
    connection: Connection, episodes: Sequence[int], words: str
) -> dict[int, list[dict[str, Any]]]:
    """The first turns of each episode with all the words, and the text where most of them are.

    If there is a regular expression, those that match it.
    """
    words, pattern = split_pattern(words)
    phrases = phrases_of(words)
    patterns = [pattern_of(each) for each in phrases] if pattern is None else [compiled(pattern)]
    if not patterns or not episodes:
        return {}
    turns = schema.turns.c
    query = select(turns.episode, turns.turn, turns.text).where(turns.episode.in_(episodes))
    found: dict[int, list[dict[str, Any]]] = {}
    for episode, turn, text in connection.execute(query.order_by(turns.episode, turns.turn)):
        if len(found.get(episode, ())) < _EXCERPTS and (parts := _excerpt(text, patterns)):
            found.setdefault(episode, []).append({"turn": turn, "parts": parts})
    return found


def _spans(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Where the pattern stands; an empty match is a mark of nothing."""
    found = (match.span() for match in islice(pattern.finditer(text), _MATCHES))
    return (span for span in found if span[1] > span[0])


def _excerpt(text: str, patterns: Sequence[re.Pattern[str]]) -> list[list[Any]] | None:
    """The part of the text with most of the words, in pieces: whether it is one of them, and the
    piece.

    None unless all of them stand in the text.
    """
    found = sorted((span, n) for n, each in enumerate(patterns) for span in _spans(each, text))
    if len({n for _, n in found}) < len(patterns):
        return None
    first = _densest(found)
    begin, end = max(0, first - _AROUND), first + 2 * _AROUND
    inside = [(max(begin, a), min(end, b)) for (a, b), _ in found if b > begin and a < end]
    return [[hit, visible(piece)] for hit, piece in _pieces(text, begin, end, inside)]


def _densest(found: Sequence[tuple[tuple[int, int], int]]) -> int:
    """Where the part begins that has the most different words, closest together."""

    def worth(i: int) -> tuple[int, int]:
        start = found[i][0][0]
        ends: dict[int, int] = {}
        for j in range(i, len(found)):
            (_, stop), word = found[j]
            if stop > start + 2 * _AROUND:
                break
            ends.setdefault(word, stop)
        return len(ends), start - max(ends.values(), default=start)

    return found[max(range(len(found)), key=worth)][0][0]


def _pieces(
    text: str, begin: int, end: int, spans: Sequence[tuple[int, int]]
) -> Iterator[tuple[bool, str]]:
    """The part of a text, in pieces: whether it is one of the spans, and the piece."""
    at = begin
    for start, stop in spans:
        if start >= at:
            yield False, text[at:start]
            yield True, text[start:stop]
            at = stop
    yield False, text[at:end]
