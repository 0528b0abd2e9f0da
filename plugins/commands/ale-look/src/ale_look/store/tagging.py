"""Tags of runs, in a file of the run directory: they last as long as the run does."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from ale.errors import InputError
from ale.files import open_file, write_whole
from ale.strict import nearest

TAGS = "tags.json"


def read_tags(run: Path) -> list[str]:
    """The tags of a run, sorted.

    Raises:
        InputError: the file is not a list of texts.
    """
    path = run / TAGS
    try:
        with open_file(path) as file:
            tags = json.load(file)
    except FileNotFoundError:
        return []
    except (ValueError, RecursionError) as error:
        raise InputError.of(str(error), file=str(path)) from None
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InputError.of("expected a JSON list of texts", file=str(path))
    return sorted({*tags})


def change_tags(run: Path, add: Iterable[str] = (), remove: Iterable[str] = ()) -> list[str]:
    """Add and remove tags of a run; its tags afterwards.

    Raises:
        InputError: a tag has a blank or a comma in it, or is empty.
        StoreError: the file can't be written.
    """
    added = [*add]
    for tag in added:
        if not tag or any(character.isspace() or character == "," for character in tag):
            message = f"the tag {tag!r} is empty, or has a blank or a comma in it"
            raise InputError.of(message, file="--add")
    tags = sorted({*read_tags(run), *added} - {*remove})
    write_whole(run / TAGS, json.dumps(tags, ensure_ascii=False) + "\n")
    return tags


def check_removed(runs: Sequence[Path], remove: Iterable[str]) -> None:
    """Refuse to remove a tag that none of these runs has.

    Raises:
        InputError: with the nearest tag that one of them has.
    """
    known = sorted({tag for run in runs for tag in read_tags(run)})
    where = "the run doesn't have" if len(runs) == 1 else "none of the runs has"
    for tag in remove:
        if tag not in known:
            message = f"{where} the tag {tag!r}"
            hint = nearest(tag, known) or f"tags: {', '.join(known) or 'none'}"
            raise InputError.of(message, file="--remove", hint=hint)
