"""Connect to a server, and carry bodies that are larger than a message may be."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from attrs import frozen
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error
from nats.js import JetStreamContext
from nats.js.api import ObjectStoreConfig, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError, ObjectNotFoundError

from ale.errors import AleError
from ale_nats.options import ServerOptions
from ale_nats.subjects import OBJECT, OBJECTS

LOST = (Error, OSError, asyncio.TimeoutError)
"""What a call raises while the server can't be reached; it can be made again."""
_HEADERS_BYTES = 4096
_RECONNECT_S = 0.5
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
    errors: list[Exception] = []
    answers: list[Exception] = []
    refused = asyncio.Event()
    servers = options.url.split(",")

    async def note(error: Exception) -> None:
        # A server that refuses a client closes the connection, sometimes before its reason is read:
        # the next attempt may read it.
        if isinstance(error, ConnectionResetError):
            errors.insert(0, error)
        else:
            errors.append(error)
            answers.append(error)
        if len(answers) >= len(servers):
            refused.set()

    async def lost() -> None:
        if not client.is_closed:
            await on_lost()

    client = Client()
    connecting = client.connect(
        servers,
        name=name,
        error_cb=note,
        disconnected_cb=lost,
        reconnected_cb=on_back,
        connect_timeout=max(1, int(timeout_s)),
        max_reconnect_attempts=-1,
        reconnect_time_wait=_RECONNECT_S,  # type: ignore[arg-type]  # a fraction of a second does
        **_identity(options, environ),
        **_tls(options),
    )
    await _first_time(connecting, refused, timeout_s)
    if not client.is_connected:
        error = errors[-1] if errors else None
        with suppress(*LOST):
            await client.close()
        raise AleError(_unreachable(options.url, error, timeout_s))
    refused.set()
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
        with suppress(*LOST):
            await client.close()


async def _first_time(
    connecting: Coroutine[Any, Any, None], refused: asyncio.Event, timeout_s: float
) -> None:
    """Try to connect until every server has said no: the client itself would try for ever."""
    attempt, no = asyncio.create_task(connecting), asyncio.create_task(refused.wait())
    await asyncio.wait({attempt, no}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    no.cancel()
    if not attempt.done():
        attempt.cancel()
    with suppress(asyncio.CancelledError, *LOST):
        await attempt


def _unreachable(where: str, error: Exception | None, timeout_s: float) -> str:
    if isinstance(error, ssl.SSLError):
        return f"the NATS server at {where}: TLS failed: {error}; check tls_ca and tls_certificate"
    text = "" if error is None else str(error).removeprefix("nats: ").strip("'\"")
    if "authorization" in text.lower() or "authentication" in text.lower():
        return (
            f"the NATS server at {where} refuses this client: {text}; check credentials, user_env, "
            "password_env, token_env"
        )
    reason = text or f"no answer in {timeout_s:g} s"
    return (
        f"no NATS server can be reached at {where}: {reason}; start one there (nats-server "
        "-js), or name another: executor.url or an observer's url in a config, --nats for `ale "
        "worker` and `ale events`, or the variable NATS_URL"
    )


def _identity(options: ServerOptions, environ: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for key in ("user", "password", "token"):
        variable = getattr(options, f"{key}_env")
        if variable is None:
            continue
        if variable not in environ:
            raise AleError(f"{key}_env names the variable {variable}, which is not set")
        found[key] = environ[variable]
    if options.credentials is not None:
        if not options.credentials.is_file():
            raise AleError(f"credentials: there is no file {options.credentials}")
        found["user_credentials"] = str(options.credentials)
    return found


def _tls(options: ServerOptions) -> dict[str, Any]:
    wanted = options.tls_ca or options.tls_certificate or "tls://" in options.url
    if not wanted:
        return {}
    try:
        made = ssl.create_default_context(cafile=options.tls_ca and str(options.tls_ca))
        if options.tls_certificate is not None:
            made.load_cert_chain(options.tls_certificate, options.tls_key)
    except OSError as error:  # ssl.SSLError too
        raise AleError(f"the TLS files can't be used: {error}") from None
    return {"tls": made}
