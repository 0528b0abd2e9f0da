"""The page and all that it shows of some runs, as files that any server of files can serve."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from attrs import define

from ale.errors import InputError
from ale.files import replacing
from ale.runs import Registry, RunReader
from ale_look.view.catalog import Catalog
from ale_look.view.pages import static_files
from ale_look.view.schemes import OtherSchemes, learns
from ale_look.view.server import about
from ale_look.view.watched import Watched

FILES = "api/files.json"
"""The names of a bundle's files: a later bundle removes these and nothing else."""
_QUOTED = re.compile(r'"/[^"\n]*/([^"/\n]*)"')
_PATH = re.compile(r"(?<![\w.~/\]-])/(?:[^\s/\"':,;=]+/)+([^\s/\"':,;=]*)")
"""Absolute paths of two names and more, in a text of JSON or of a message."""


@define
class Written:
    """Numbers of a bundle."""

    runs: int = 0
    episodes: int = 0
    size: int = 0


def write_bundle(catalog: Catalog, target: Path, registry: Registry) -> Written:
    """Write the static site; an earlier one that is there is replaced.

    Raises:
        InputError: a stored line is damaged, or there is something that no bundle has written.
        OSError: it can't be written.
    """
    _refuse_of_others(target)
    written, names = Written(), [FILES]

    def put(folder: Path, name: str, data: bytes) -> None:
        names.append(name)
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        written.size += len(data)

    with replacing(target, folder=True, private=True) as folder:
        for name, data in static_files().items():
            put(folder, name, data)
        rows = catalog.rows()
        # Where the runs are on this machine is left out.
        first = {**about(registry, catalog, is_live=False), "folder": catalog.folder.name}
        schemes: set[str] = set()
        listed = [{**row, "path": row["key"], "host": ""} for row in rows]
        put(folder, "api/runs.json", msgspec.json.encode({"runs": listed, "problems": []}))
        for row in rows:
            watched = Watched(row["key"], Path(row["path"]))
            _write_run(watched, row["key"], folder, put, written, registry)
            schemes.update(_write_credit(watched, row["key"], folder, put, registry))
        first["schemes"] = sorted(schemes)
        put(folder, "api/about.json", msgspec.json.encode(first))
        put(folder, FILES, msgspec.json.encode(sorted(set(names))))
    return written


Put = Callable[[Path, str, bytes], None]


def _write_run(
    watched: Watched, key: str, folder: Path, put: Put, written: Written, registry: Registry
) -> None:
    put(folder, f"api/run/{key}.json", _without_places(watched.summary()))
    put(folder, f"api/run/{key}/episodes.json", watched.episodes())
    put(folder, f"api/run/{key}/timeline.json", watched.timeline())
    notes: dict[str, Any] = msgspec.json.decode(watched.notes())
    notes["problem"] = _shortened(notes["problem"])
    put(folder, f"api/run/{key}/notes.json", msgspec.json.encode(notes))
    written.runs += 1
    for head in watched.heads():
        name = f"api/run/{key}/episode/{head.offset}.json"
        put(folder, name, watched.episode(head.offset))
        tokens = watched.tokens(head.offset)
        if tokens.strip(b"[]nul,"):  # some turn has tokens
            put(folder, f"api/run/{key}/tokens/{head.offset}.json", tokens)
        if (worth := watched.worth(head.offset, registry)) != b"{}":
            put(folder, f"api/run/{key}/worth/{head.offset}.json", worth)
        written.episodes += 1


def _write_credit(
    watched: Watched, key: str, folder: Path, put: Put, registry: Registry
) -> list[str]:
    """Write the credit of each episode under other schemes; their names."""
    schemes = OtherSchemes(RunReader(watched.path), registry, plugin_files=False)
    heads = [head for head in watched.heads() if learns(head)]
    if schemes.names:
        found = schemes.credits({(head.step, head.task_id) for head in heads})
        for head in heads:
            name = f"api/run/{key}/credit/{head.offset}.json"
            put(folder, name, msgspec.json.encode(found.get(head.id, [])))
    return schemes.names


def _without_places(summary: bytes) -> bytes:
    """The summary, where of each path of this machine that the run's records name the last name is
    left."""
    found: dict[str, Any] = msgspec.json.decode(summary)
    for part in ("about", "documents", "causes", "warnings"):
        found[part] = _shortened(found[part])
    return msgspec.json.encode(found)


def _shortened(value: Any) -> Any:
    if isinstance(value, str):
        return _PATH.sub(r"…/\1", _QUOTED.sub(r'"…/\1"', value))
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    if isinstance(value, dict):
        return {name: _shortened(each) for name, each in value.items()}
    return value


def _refuse_of_others(target: Path) -> None:
    """Raise `InputError` for a folder with something that no bundle has written there."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputError.of("it is no folder", file=str(target), hint="name a new folder")
    own = set(_written_before(target))
    own |= {str(above) for name in own for above in Path(name).parents}
    names = [str(each.relative_to(target)) for each in target.rglob("*")]
    others = [name for name in names if name not in own]
    if others:
        first = min(others)
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        message = f"there is something else than a bundle: {first}{more}"
        raise InputError.of(message, file=str(target), hint="name a new folder")


def _written_before(target: Path) -> list[str]:
    """The files that the bundle in a folder consists of; none if there is no bundle."""
    file = target / FILES
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[str]) if file.is_file() else []
    except msgspec.MsgspecError as error:
        raise InputError.of(f"can't be read: {error}", file=str(file)) from error
