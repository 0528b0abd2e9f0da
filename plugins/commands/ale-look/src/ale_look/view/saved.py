"""``searches.jsonl``: searches that were saved under a name, beside the runs that they are over."""

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ale.errors import InputError
from ale.files import open_file
from ale.runs import append_record
from ale_look.view.catalog import Catalog

FILE = "searches.jsonl"
MOST = 200
"""Searches that are kept."""


class Saved(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A line of the file, and the body of a request that writes it.

    A later line with the same name takes the place of an earlier one.
    """

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    query: Annotated[str, Meta(max_length=4000)]
    """The part of the page's address after ``#/search?``; empty to delete the search."""


def file_of(catalog: Catalog) -> Path:
    """The file of a catalog: in the folder of runs, also where one of them alone is shown."""
    return (catalog.folder if catalog.only is None else catalog.folder.parent) / FILE


def saved(path: Path) -> dict[str, Any]:
    """The searches by name, which lines are left out, and whether one can be saved."""
    try:
        with open_file(path) as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        lines = []
    except OSError as error:
        raise InputError.of(f"can't be read: {error.strerror}", file=str(path)) from error
    found: dict[str, str] = {}
    damaged = []
    for number, line in enumerate(lines, 1):
        try:
            row = msgspec.json.decode(line, type=Saved)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            damaged.append(str(number))
            continue
        found.pop(row.name, None)
        if row.query:
            found[row.name] = row.query
    return {
        "searches": [{"name": name, "query": found[name]} for name in sorted(found)],
        "problem": f"{path}: no search in line {', '.join(damaged[:9])}" if damaged else None,
        "writable": os.access(path if path.exists() else path.parent, os.W_OK),
    }


def save(path: Path, body: bytes) -> dict[str, Any]:
    """Append the search that a request has in its body; all of them then.

    Raises:
        InputError: it is none, or there are too many.
        StoreError: it can't be written.
    """
    try:
        asked = msgspec.json.decode(body, type=Saved)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError.of(f"this is no search: {error}") from None
    name = asked.name.strip()
    if not name:
        raise InputError.of("a search needs a name")
    known = {each["name"] for each in saved(path)["searches"]}
    if asked.query and name not in known and len(known) >= MOST:
        raise InputError.of(f"{MOST} searches are saved: delete one first")
    append_record(path, Saved(name=name, query=asked.query.strip()))
    return saved(path)
