"""Where a client finds its servers: addresses, or files in a folder that all can reach.

Each server has one JSON file, written beside its final place and renamed, and renews the file's
modification time. A server that was killed stops renewing it, and its entry expires.
"""

import asyncio
import contextlib
import logging
import os
import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import msgspec
from attrs import define, field

from ale.files import replacing
from ale_servers.records import Entry
from ale_servers.supervisor import is_alive

log = logging.getLogger(__name__)
BEAT_S = 2.0
"""Seconds between renewals of an entry."""
EXPIRY_S = 15.0
"""Seconds after which an entry that was not renewed has expired."""


class Registry(Protocol):
    """A source of servers."""

    def entries(self) -> Sequence[Entry]:
        """The servers present now; called every few seconds."""
        ...


class Writable(Registry, Protocol):
    """A registry in which servers can enter themselves."""

    def add(self, entry: Entry) -> None:
        """Write an entry, or renew it with other contents."""
        ...

    def renew(self, entry: Entry) -> None:
        """Renew an entry; it is written again if somebody has removed it."""
        ...

    def remove(self, name: str) -> None:
        """Remove an entry, if it is there."""
        ...

    def close(self) -> None:
        """Close the connection, if there is one. Idempotent."""
        ...


class Addresses:
    """Servers whose base URLs are known.

    Args:
        urls: with or without the ``/v1`` that `ale serve` prints.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._entries = [Entry(url=base_url(url), name=base_url(url)) for url in urls]

    def entries(self) -> Sequence[Entry]:
        """All of them."""
        return self._entries


@define(eq=False, slots=False)
class FolderRegistry:
    """Servers with entries in a folder."""

    folder: Path
    """Created if missing."""
    _expiry_s: float = field(default=EXPIRY_S, kw_only=True)
    """Age, in seconds by the clock of the folder's file system, of an expired entry."""

    def __str__(self) -> str:
        return str(self.folder)

    def entries(self) -> Sequence[Entry]:
        """The entries that have not expired, by name; files that can't be read are ignored."""
        self.folder.mkdir(parents=True, exist_ok=True)
        oldest = self._now() - self._expiry_s
        found = []
        for file in sorted(self.folder.glob("*.json")):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                if file.stat().st_mtime >= oldest:
                    found.append(msgspec.json.decode(file.read_bytes(), type=Entry))
        return found

    def add(self, entry: Entry) -> None:
        """Write an entry, or renew it with other contents."""
        with replacing(self._file(entry.name)) as partial:
            partial.write_bytes(msgspec.json.encode(entry))

    def renew(self, entry: Entry) -> None:
        """Renew an entry; it is written again if somebody has removed it.

        The entry of another server under this name is left alone until it has expired.
        """
        file = self._file(entry.name)
        try:
            if msgspec.json.decode(file.read_bytes(), type=Entry) == entry:
                os.utime(file)
                return
            expired = file.stat().st_mtime < self._now() - self._expiry_s
        except (FileNotFoundError, msgspec.DecodeError):
            expired = True
        if expired:
            self.add(entry)

    def remove(self, name: str) -> None:
        """Remove an entry, if it is there."""
        self._file(name).unlink(missing_ok=True)

    def close(self) -> None:
        """There is no connection to close."""

    def _file(self, name: str) -> Path:
        return self.folder / f"{file_name(name)}.json"

    def _now(self) -> float:
        """The time of the file system, which writes the modification times."""
        clock = self.folder / f".clock.{os.getpid()}"
        clock.touch()
        os.utime(clock)
        try:
            return clock.stat().st_mtime
        finally:
            clock.unlink(missing_ok=True)


@asynccontextmanager
async def registered(
    registry: Writable, entry: Entry, beat_s: float = BEAT_S
) -> AsyncIterator[None]:
    """Keep an entry in the registry while the block runs."""
    await asyncio.to_thread(registry.add, entry)

    ended = asyncio.Event()

    async def beat() -> None:
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), beat_s)
                return
            with contextlib.suppress(OSError):  # a disk that is full now may have room again
                await asyncio.to_thread(registry.renew, entry)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        # A renewal in progress ends first: after the removal it would write the entry again.
        ended.set()
        await beating
        try:
            await asyncio.to_thread(registry.remove, entry.name)
        except OSError as error:
            log.warning("the entry %s could not be removed, and expires: %s", entry.name, error)


def namesake(registry: Registry, entry: Entry) -> Entry | None:
    """Another server of this machine that has the entry's name, and is running."""
    found = (each for each in registry.entries() if file_name(each.name) == file_name(entry.name))
    mine = (each for each in found if each.host == entry.host and each.pid not in (0, entry.pid))
    return next((each for each in mine if is_alive(each.pid)), None)


def own_entry(url: str, name: str = "") -> Entry:
    """The entry of a server in this process."""
    host = socket.gethostname()
    return Entry(
        url=base_url(url), name=name or f"{host}-{os.getpid()}", host=host, pid=os.getpid()
    )


def base_url(url: str) -> str:
    """The URL without the path that clients of the chat API need."""
    return url.rstrip("/").removesuffix("/v1")


def file_name(name: str) -> str:
    """The file name for an entry's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).lstrip(".") or "_"
