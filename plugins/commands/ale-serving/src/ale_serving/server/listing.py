"""The servers of a registry, as a table."""

import asyncio
import time
from collections.abc import Iterator, Sequence

from ale.errors import LLMError
from ale_servers.client import Connections, HTTPServer
from ale_servers.records import Entry, ServerStatus
from ale_serving.server.places import Place
from ale_serving.server.running import started

HEAD = ("name", "address", "model", "version", "load", "since")


def listing(place: Place, key: str | None = None) -> Sequence[str]:
    """Lines of the table; each server is asked, all at once.

    Args:
        key: that of the servers.

    Raises:
        AleError: the registry can't be reached.
    """
    entries = place.entries()
    rows = asyncio.run(_asked(entries, key))
    there = {entry.name for entry in entries}
    rows += [
        (name, f"does not answer yet; see {place.log(name)}")
        for name in started(place)
        if name not in there
    ]
    if not rows:
        return [f"There is no server in {place.registry}."]
    return list(_table([HEAD, *rows]))


async def _asked(entries: Sequence[Entry], key: str | None) -> list[tuple[str, ...]]:
    connections = Connections(key)
    try:
        return list(await asyncio.gather(*(_row(entry, connections) for entry in entries)))
    finally:
        await connections.aclose()


async def _row(entry: Entry, connections: Connections) -> tuple[str, ...]:
    try:
        status = await HTTPServer(entry, connections).status()
    except LLMError as error:
        return (entry.name, entry.url, str(error))
    version = f"{status.version} ({status.digest[:8]})"
    return (entry.name, entry.url, status.model, version, _load(status), _since(status.since))


def _load(status: ServerStatus) -> str:
    waiting = f" +{status.waiting}" if status.waiting else ""
    paused = ", paused" if status.paused else ""
    return f"{status.running}{waiting} of {status.max_running}{paused}"


def _since(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    whole = [row for row in rows if len(row) == len(HEAD)]
    widths = [max(len(row[i]) for row in whole) for i in range(len(HEAD))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join(cells).rstrip()
