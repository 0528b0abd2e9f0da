"""Connect to a server, and carry bodies that are larger than a message may be."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from attrs import frozen
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ObjectStoreConfig, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError, ObjectNotFoundError

from ale.errors import AleError
from ale_nats.subjects import OBJECT, OBJECTS
from ale_nats_client.client import LOST, close, connect
from ale_nats_client.options import ServerOptions

_HEADERS_BYTES = 4096
_ANOTHER = (
    ", or name another: executor.url or an observer's url in a config, --nats for `ale workers "
    "run` and `ale workers events`, or the variable NATS_URL"
)
_OBJECTS_KEPT_S = 7 * 86_400.0
_EXISTS = 10058
"""JetStream's code for a stream of this name with another configuration."""


@frozen
class Link:
    """A connection."""

    client: Client
    stream: JetStreamContext

    async def ensure(self, configs: Sequence[StreamConfig]) -> None:
        """Make the streams that are missing; one that exists stays as it is."""
        for config in configs:
            try:
                await self.stream.add_stream(config)
            except BadRequestError as error:
                if error.err_code != _EXISTS:
                    raise

    async def has(self, stream: str, subject: str) -> bool:
        """Is there a message on a subject of a stream?"""
        try:
            await self.stream.get_last_msg(stream, subject)
        except NotFoundError:
            return False
        return True

    async def pack(self, name: str, data: bytes) -> tuple[bytes, dict[str, str]]:
        """Body and headers of a message with this content.

        Args:
            name: begins the name of the object, where the content goes into the object store.
        """
        if len(data) <= self.client.max_payload - _HEADERS_BYTES:
            return data, {}
        unique = f"{name}.{os.urandom(6).hex()}"
        config = ObjectStoreConfig(ttl=_OBJECTS_KEPT_S, storage=StorageType.FILE)
        store = await self.stream.create_object_store(OBJECTS, config=config)
        await store.put(unique, data)
        return b"", {OBJECT: unique}

    async def unpack(self, message: Msg) -> bytes:
        """The content of a message. Raises `ObjectNotFoundError` where it has been removed."""
        name = (message.headers or {}).get(OBJECT)
        if name is None:
            return message.data
        store = await self.stream.object_store(OBJECTS)
        return (await store.get(name)).data or b""

    async def remove(self, message: Msg) -> None:
        """Remove the object of a message, if it has one."""
        name = (message.headers or {}).get(OBJECT)
        if name is not None:
            with suppress(NotFoundError, ObjectNotFoundError):
                await (await self.stream.object_store(OBJECTS)).delete(name)


async def _nothing() -> None: ...


@asynccontextmanager
async def connected(
    options: ServerOptions,
    environ: Mapping[str, str],
    *,
    name: str,
    timeout_s: float = 5.0,
    on_lost: Callable[[], Awaitable[None]] = _nothing,
    on_back: Callable[[], Awaitable[None]] = _nothing,
) -> AsyncIterator[Link]:
    """A connection that is made again whenever it is lost, closed after the block.

    Raises (on entry):
        AleError: the server can't be reached, refuses this client or has no JetStream.
    """
    client = await connect(
        options,
        environ,
        name=name,
        timeout_s=timeout_s,
        on_lost=on_lost,
        on_back=on_back,
        hint=_ANOTHER,
    )
    try:
        link = Link(client, client.jetstream(timeout=timeout_s))
        try:
            await link.stream.account_info()
        except LOST as error:
            message = (
                f"the NATS server at {options.url} has no JetStream: start it with -js ({error})"
            )
            raise AleError(message) from None
        yield link
    finally:
        await close(client)
