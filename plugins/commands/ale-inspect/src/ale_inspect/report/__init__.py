"""``report.html``: one file per run that needs no network, no server and no other file."""

from pathlib import Path

from ale.runs import RunReader
from ale_inspect.report.gathering import gather
from ale_inspect.report.page import page

NAME = "report.html"


def write_report(run: RunReader, target: Path, *, episodes: int, megabytes: float) -> int:
    """Write the report of a stored run, also of one that is going on.

    The run is read twice, one episode at a time: once to count, once for the episodes that the
    report holds whole.

    Args:
        target: the file; a reader sees the old one or the new one, never a part.
        episodes: hold at most this many whole.
        megabytes: stop before these episodes take more (10**6 bytes).

    Returns:
        Bytes written.

    Raises:
        InputError: a stored line is damaged.
        OSError: the target can't be written.
    """
    partial = target.with_name(f".{target.name}.partial")
    try:
        with partial.open("wb") as file:
            for piece in page(run, gather(run), episodes, int(1e6 * megabytes)):
                file.write(piece.encode("utf-8", "replace"))
            size = file.tell()
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return size
