"""A registry for several hosts: a bucket of keys and values in NATS JetStream.

NATS removes an entry that is not renewed. The bucket is watched, so looking at it costs nothing;
while NATS can't be reached, the last known entries stay.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from attrs import define, evolve, field
from nats.aio.client import Client
from nats.js.api import KeyValueConfig
from nats.js.errors import (
    BucketNotFoundError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NotFoundError,
)
from nats.js.kv import KeyValue

from ale.errors import AleError
from ale_nats_client.client import LOST, close, connect
from ale_nats_client.options import ServerOptions
from ale_servers.records import Entry
from ale_servers.registry import EXPIRY_S, file_name

_CALL_S = 10.0
BUCKET = "ale-servers"
T = TypeVar("T")


@define(eq=False, repr=False, slots=False)
class NatsRegistry:
    """Servers with entries in a bucket. Opens no connection before the first call."""

    _options: ServerOptions
    """Their URL ends with the bucket: ``nats://HOST:PORT/BUCKET``."""
    _environ: Mapping[str, str]
    """Contains the variables that the options name."""
    _expiry_s: float = field(default=EXPIRY_S, kw_only=True)
    """Seconds after which an entry that was not renewed has expired."""

    def __attrs_post_init__(self) -> None:
        parts = urlsplit(self._options.url)
        self._options = evolve(self._options, url=f"{parts.scheme}://{parts.netloc}")
        self._bucket = parts.path.strip("/") or BUCKET
        self._seen: dict[str, tuple[Entry, float]] = {}
        """Entries, and when each was last renewed, by this process's clock."""
        self._lost_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._opening = threading.Lock()
        self._client: Client | None = None
        self._watching: asyncio.Task[None] | None = None
        self._listed = asyncio.Event()

    def __str__(self) -> str:
        return f"{self._options.url}/{self._bucket}"

    def entries(self) -> Sequence[Entry]:
        """The entries that have not expired, ordered by name.

        Raises:
            ConnectionError: NATS can't be reached, at the first call.
        """
        self._call(self._listing())
        oldest = time.monotonic() - self._expiry_s
        is_known = self._client is not None and self._client.is_connected
        seen = sorted(self._seen.items())
        return [entry for _, (entry, at) in seen if at >= oldest or not is_known]

    def add(self, entry: Entry) -> None:
        """Write an entry, or renew it with other contents.

        Raises:
            ConnectionError: NATS can't be reached.
        """
        self._call(self._put(entry))

    def renew(self, entry: Entry) -> None:
        """Renew an entry; it is written again if somebody has removed it.

        The entry of another server under this name is left alone until it has expired.

        Raises:
            ConnectionError: NATS can't be reached.
        """
        self._call(self._renew(entry))

    def remove(self, name: str) -> None:
        """Remove an entry, if it is there.

        Raises:
            ConnectionError: NATS can't be reached.
        """
        self._call(self._delete(name))

    def close(self) -> None:
        """Close the connection. Idempotent."""
        loop, self._loop = self._loop, None
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._closed(), loop).result(_CALL_S)
            loop.call_soon_threadsafe(loop.stop)
            assert self._thread is not None
            self._thread.join()
            loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the connection's thread."""
        with self._opening:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
                self._thread.start()
            loop = self._loop
        try:
            return asyncio.run_coroutine_threadsafe(work, loop).result(_CALL_S)
        except (AleError, *LOST) as error:
            reason = str(error) or type(error).__name__
            raise ConnectionError(f"the registry {self} can't be reached: {reason}") from error

    async def _closed(self) -> None:
        if self._client is not None:
            await close(self._client)
        # The client runs tasks of its own for the watch.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _opened(self) -> KeyValue:
        if self._client is None:
            self._client = await connect(
                self._options,
                self._environ,
                name="ale servers",
                on_lost=self._lost,
                on_back=self._watch_anew,
            )
        stream = self._client.jetstream(timeout=5)
        try:
            return await stream.key_value(self._bucket)
        except (BucketNotFoundError, NotFoundError):
            config = KeyValueConfig(bucket=self._bucket, ttl=self._expiry_s)
            return await stream.create_key_value(config)

    async def _listing(self) -> None:
        """Begin to watch, and wait until the present entries have been listed."""
        if self._watching is None or self._watching.done():
            bucket = await self._opened()
            self._listed = asyncio.Event()
            self._watching = asyncio.create_task(self._watch(bucket))
        if self._client is not None and self._client.is_connected:
            async with asyncio.timeout(_CALL_S / 2):
                await self._listed.wait()

    async def _lost(self) -> None:
        """Drop the entries that have expired, so that they do not come back."""
        self._lost_at = time.monotonic()
        oldest = self._lost_at - self._expiry_s
        self._seen = {key: seen for key, seen in self._seen.items() if seen[1] >= oldest}

    async def _watch_anew(self) -> None:
        """After a lost connection: the entries could not be renewed in the meantime."""
        away = time.monotonic() - self._lost_at
        self._seen = {key: (entry, at + away) for key, (entry, at) in self._seen.items()}
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self, bucket: KeyValue) -> None:
        watcher = await bucket.watchall()
        async for update in watcher:
            if update is None:  # all existing entries have been received
                self._listed.set()
            elif update.operation is not None or not update.value:
                self._seen.pop(update.key, None)
            else:
                with contextlib.suppress(msgspec.DecodeError):
                    entry = msgspec.json.decode(update.value, type=Entry)
                    self._seen[update.key] = (entry, time.monotonic())

    async def _put(self, entry: Entry) -> None:
        await (await self._opened()).put(file_name(entry.name), msgspec.json.encode(entry))

    async def _renew(self, entry: Entry) -> None:
        bucket = await self._opened()
        key, value = file_name(entry.name), msgspec.json.encode(entry)
        with contextlib.suppress(KeyWrongLastSequenceError):  # another was faster
            try:
                found = await bucket.get(key)
            except KeyNotFoundError:
                await bucket.create(key, value)
            else:
                if found.value == value:
                    await bucket.update(key, value, last=found.revision)

    async def _delete(self, name: str) -> None:
        await (await self._opened()).delete(file_name(name))
