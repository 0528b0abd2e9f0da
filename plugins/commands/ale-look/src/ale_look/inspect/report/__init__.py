"""``report.html``: one file per run that needs no network and no server."""

from pathlib import Path

from ale.files import replacing
from ale.runs import Registry, RunReader
from ale_look.inspect.report.gathering import gather
from ale_look.inspect.report.page import page

NAME = "report.html"


def write_report(
    run: RunReader,
    target: Path,
    *,
    episodes: int,
    megabytes: float,
    registry: Registry | None = None,
) -> int:
    """Write the report of a stored or running run.

    The run is read twice, one episode at a time: once to count, once for the included episodes.

    Args:
        target: the file; replaced atomically.
        episodes: include at most this many.
        megabytes: total size limit of these episodes (10**6 bytes).
        registry: of the credit schemes that are drawn beside measured values; default: what is
            installed.

    Returns:
        Bytes written.

    Raises:
        InputError: a stored line is damaged.
        OSError: the target can't be written.
    """
    with replacing(target, private=True) as partial, partial.open("wb") as file:
        drawn = page(run, gather(run), episodes, int(1e6 * megabytes), registry)
        for piece in drawn:
            file.write(piece.encode("utf-8", "replace"))
        return file.tell()
