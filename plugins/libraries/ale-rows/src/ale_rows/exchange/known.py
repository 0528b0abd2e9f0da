"""Files of other programs that are no data sets: named, so that nobody has to guess."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_INSPECT = "a log of Inspect AI"
_INSPECT_HINT = (
    "'inspect log dump LOG' prints it as JSON: write the 'messages' of each of its 'samples' as a "
    "line of a .jsonl file, and import that with --format openai"
)
_BEGINS = {
    b"PK\x03": "a zip archive",
    b"\x1f\x8b": "compressed by gzip",
    b"\x28\xb5\x2f": "compressed by zstd",
    b"PAR": "a Parquet file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}


def known_file(path: Path, begin: bytes) -> tuple[str, str] | None:
    """A kind of file that can't be imported as it is, and what to do; None for others.

    Args:
        begin: its first three bytes.
    """
    what = next((name for magic, name in _BEGINS.items() if begin.startswith(magic)), None)
    if what is None:
        return None
    if begin.startswith(b"PK") and (path.suffix == ".eval" or _is_inspect(path)):
        return f"{_INSPECT}, whose samples are in a zip archive", _INSPECT_HINT
    return f"{what}; expected JSON or JSON lines, in UTF-8", "convert it first"


def _is_inspect(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False
    return any(name in ("header.json", "_journal/start.json") for name in names)


def known_item(item: Mapping[str, Any]) -> tuple[str, str] | None:
    """An object of another program that is no item of a data set, and what to do; None if not."""
    if isinstance(item.get("eval"), dict) and {"samples", "plan", "results"} & item.keys():
        return _INSPECT, _INSPECT_HINT
    if isinstance(item.get("trajectory"), list) and {"history", "info"} & item.keys():
        hint = (
            'its messages are under "history": write {"messages": [...]} for each, as a line of a '
            ".jsonl file, and import that with --format openai"
        )
        return "a trajectory of SWE-agent (.traj)", hint
    if {"instruction", "output"} <= item.keys():
        hint = 'write {"prompt": ..., "completion": ...} for each, and import it with --format trl'
        return "Alpaca's format, which is not read", hint
    return None
