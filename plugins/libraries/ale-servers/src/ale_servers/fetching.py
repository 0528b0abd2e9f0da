"""Copies of weights that a trainer on another machine hands out."""

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import msgspec

from ale.errors import LLMError
from ale_servers.channel import MARKER, Marker, WeightFolder, files_of
from ale_servers.own_folder import own_folder
from ale_servers.protocol import WeightsError
from ale_servers.records import Origin, Weights

_SILENCE_S = 30.0
"""Seconds without a byte after which a transfer has failed."""
_BLOCK = 1 << 20
_AT_ONCE = 4
"""Files that are transferred at once."""


class FetchedWeights:
    """Copies in a folder of this process, for a server that reads weights from folders.

    The folder is in ``TMPDIR``, and is removed with `aclose`; that of a process that was killed is
    removed by the next one. It holds two versions of the weights, and two of each adapter.
    """

    def __init__(self) -> None:
        self._root: Path | None = None
        self._lock = -1
        self._one = asyncio.Lock()
        self._connections: set[HTTPConnection] = set()
        self._copies: dict[str, tuple[Weights, Weights]] = {}
        """The newest weights and their copy, by the name of the adapter."""

    async def local(self, weights: Weights, asker: str) -> Weights:
        """The same weights in a folder that this process can read: their own, or a copy.

        Args:
            asker: address of the client that gives the weights.

        Raises:
            WeightsError: there are no such weights at their origin.
            LLMError: the transfer failed, or there is no room for a copy.
        """
        origin = weights.origin
        plain = msgspec.structs.replace(weights, origin=None)
        if origin is None or await asyncio.to_thread(_is_readable, plain):
            return plain
        origin = origin if origin.host else msgspec.structs.replace(origin, host=asker)
        async with self._one:
            known = self._copies.get(weights.adapter)
            if known is None or known[0] != plain:
                copy = await asyncio.to_thread(self._copied, plain, origin)
                known = self._copies[weights.adapter] = (plain, copy)
        return known[1]

    def _copied(self, weights: Weights, origin: Origin) -> Weights:
        try:
            if self._root is None:
                self._root, self._lock = own_folder(Path(tempfile.gettempdir()))
            channel = WeightFolder(self._root / f"of-{weights.adapter}", sync=False)
            copy = channel.publish(
                weights.version, lambda folder: self._transfer(weights, origin, folder)
            )
        except OSError as error:
            raise LLMError(f"weights can't be copied here: {error}", transient=True) from error
        return msgspec.structs.replace(weights, folder=copy.folder)

    def _transfer(self, weights: Weights, origin: Origin, folder: Path) -> str:
        """Write the files of a version into the folder; returns their digest."""
        version = f"/{origin.key}/{Path(weights.folder).name}"
        content = b"".join(map(bytes, self._blocks(origin, f"{version}/{MARKER}")))
        try:
            marker = msgspec.json.decode(content, type=Marker)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise WeightsError(f"{_where(origin)} hands out no weights: {error}") from error
        if (marker.version, marker.digest) != (weights.version, weights.digest):
            raise WeightsError(
                f"{_where(origin)} hands out version {marker.version} with digest "
                f"{marker.digest[:12]}; expected version {weights.version} with digest "
                f"{weights.digest[:12]}"
            )
        for name in marker.files:
            if "/" in name or name in ("", ".", "..", MARKER):
                raise WeightsError(f"{_where(origin)} hands out a file with the name {name!r}")
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            # Lists the results, as an error is raised only where its result is taken.
            sizes = list(
                threads.map(
                    lambda name: self._get(origin, f"{version}/{name}", folder / name), marker.files
                )
            )
        found = dict(zip(marker.files, sizes, strict=True))
        if found != marker.files:
            raise WeightsError(
                f"the weights at {_where(origin)} are not whole: expected {marker.files}, found "
                f"{found} bytes"
            )
        return marker.digest

    def _get(self, origin: Origin, path: str, to: Path) -> int:
        """Write what is at the path to a file; returns its number of bytes."""
        with to.open("wb") as file:
            for block in self._blocks(origin, path):
                file.write(block)
            return file.tell()

    def _blocks(self, origin: Origin, path: str) -> Iterator[memoryview]:
        """What is at the path; each block is overwritten by the next."""
        connection = HTTPConnection(origin.host, origin.port, timeout=_SILENCE_S)
        self._connections.add(connection)
        failed = f"weights can't be fetched from {_where(origin)}"
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status == HTTPStatus.NOT_FOUND:
                file = "/".join(path.split("/")[-2:])  # without the key
                raise WeightsError(f"{_where(origin)} does not hand out {file}")
            if answer.status != HTTPStatus.OK:
                raise LLMError(f"{failed}: status {answer.status}", transient=True)
            block = memoryview(bytearray(_BLOCK))
            while n := answer.readinto(block):
                yield block[:n]
            if answer.length:
                ended = f"the connection ended {answer.length} bytes too early"
                raise LLMError(f"{failed}: {ended}", transient=True)
        except (HTTPException, OSError) as error:
            raise LLMError(f"{failed}: {error!r}", transient=True) from error
        finally:
            self._connections.discard(connection)
            connection.close()

    async def aclose(self) -> None:
        """End transfers and remove the copies. Idempotent."""
        for connection in [*self._connections]:
            if connection.sock is not None:
                with contextlib.suppress(OSError):  # it has just ended
                    connection.sock.shutdown(socket.SHUT_RDWR)
        async with self._one:
            root, self._root = self._root, None
            if root is not None:
                await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)
                os.close(self._lock)


def _where(origin: Origin) -> str:
    return f"{origin.host}:{origin.port}"


def _is_readable(weights: Weights) -> bool:
    try:
        files_of(weights)
    except WeightsError:
        return False
    return True
