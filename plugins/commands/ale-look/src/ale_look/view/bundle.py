"""The page and all that it shows of some runs, as files that any server of files can serve."""

from collections.abc import Callable
from pathlib import Path

import msgspec
from attrs import define

from ale.errors import InputError
from ale.files import replacing
from ale.runs import Registry
from ale_look.view.catalog import Catalog
from ale_look.view.server import about, static_files
from ale_look.view.watched import Watched


@define
class Written:
    """Numbers of a bundle."""

    runs: int = 0
    episodes: int = 0
    size: int = 0


def write_bundle(catalog: Catalog, target: Path, registry: Registry) -> Written:
    """Write the static site; an earlier one that is there is replaced.

    Raises:
        InputError: a stored line is damaged, or something else is there.
        OSError: it can't be written.
    """
    _refuse_of_others(target)
    written = Written()

    def put(folder: Path, name: str, data: bytes) -> None:
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
        listed = [{**row, "path": row["key"], "host": ""} for row in rows]
        put(folder, "api/about.json", msgspec.json.encode(first))
        put(folder, "api/runs.json", msgspec.json.encode({"runs": listed, "problems": []}))
        for row in rows:
            watched = Watched(row["key"], Path(row["path"]))
            _write_run(watched, row["key"], folder, put, written, registry)
    return written


Put = Callable[[Path, str, bytes], None]


def _write_run(
    watched: Watched, key: str, folder: Path, put: Put, written: Written, registry: Registry
) -> None:
    put(folder, f"api/run/{key}.json", watched.summary())
    put(folder, f"api/run/{key}/episodes.json", watched.episodes())
    written.runs += 1
    for head in watched.heads():
        name = f"api/run/{key}/episode/{head.offset}.json"
        put(folder, name, watched.episode(head.offset))
        if (worth := watched.worth(head.offset, registry)) != b"{}":
            put(folder, f"api/run/{key}/worth/{head.offset}.json", worth)
        written.episodes += 1


def _refuse_of_others(target: Path) -> None:
    """Raise `InputError` for a folder that has something else than a bundle."""
    if not target.exists() or (target / "api" / "about.json").is_file():
        return
    if not target.is_dir() or any(target.iterdir()):
        message = "there is something else than a bundle"
        raise InputError.of(message, file=str(target), hint="name a new folder")
