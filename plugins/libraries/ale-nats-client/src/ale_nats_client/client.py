"""Connect to a server, and say why that failed."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from nats.aio.client import Client
from nats.errors import Error, UnexpectedEOF

from ale.errors import AleError
from ale_nats_client.options import ServerOptions

LOST = (Error, OSError, asyncio.TimeoutError)
"""What a call raises while the server can't be reached; it can be made again."""
_RECONNECT_S = 0.5
_CLOSE_S = 5.0
_CLOSED = (ConnectionResetError, BrokenPipeError, UnexpectedEOF)


async def _nothing() -> None: ...


async def connect(
    options: ServerOptions,
    environ: Mapping[str, str],
    *,
    name: str | None = None,
    timeout_s: float = 5.0,
    on_lost: Callable[[], Awaitable[None]] = _nothing,
    on_back: Callable[[], Awaitable[None]] = _nothing,
    hint: str = "",
) -> Client:
    """A connection that is made again whenever it is lost.

    Args:
        environ: where the variables that the options name are looked up.
        name: of this client, in the server's lists.
        hint: how another server is named, for the error's message.

    Raises:
        AleError: the server can't be reached, or refuses this client.
    """
    logging.getLogger("asyncio").addFilter(_is_of_use)
    errors: list[Exception] = []
    answers: list[Exception] = []
    refused = asyncio.Event()
    servers = options.url.split(",")

    async def note(error: Exception) -> None:
        # A server that refuses a client closes the connection, sometimes before its reason is read:
        # the next attempt may read it.
        if isinstance(error, _CLOSED):
            errors.insert(0, error)
        else:
            errors.append(error)
            answers.append(error)
        if len(answers) >= len(servers):
            refused.set()

    async def lost() -> None:
        if not client.is_closed:
            await on_lost()

    tls = _tls(options)
    client = _TLSClient() if tls else Client()
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
        **tls,
    )
    await _first_time(connecting, refused, timeout_s)
    if not client.is_connected:
        error = errors[-1] if errors else None
        await close(client)
        raise AleError(_unreachable(options.url, error, timeout_s, hint))
    refused.set()
    return client


async def close(client: Client) -> None:
    """Close a connection, which may be lost.

    With TLS, nats-py then fails on what it has not sent, and waits without end for the close of a
    connection whose handshake has failed.
    """
    with suppress(*LOST, AttributeError):
        async with asyncio.timeout(_CLOSE_S):
            await client.close()


class _TLSClient(Client):
    """Refuses a server without TLS, to which a `Client` sends its password in the clear."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and not info.get("tls_required"):
            raise ssl.SSLError(0, "the server does not speak TLS")
        await super()._process_info(info, initial_connection)


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


def _unreachable(where: str, error: Exception | None, timeout_s: float, hint: str) -> str:
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
        f"no NATS server can be reached at {where}: {reason}; start one there (nats-server -js)"
        f"{hint}"
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
    ca, own, key = options.tls_ca, options.tls_certificate, options.tls_key
    if not (ca or own or "tls://" in options.url):
        return {}
    for name, path in (("tls_ca", ca), ("tls_certificate", own), ("tls_key", key)):
        if path is not None and not path.is_file():
            raise AleError(f"{name}: there is no file {path}")
    named = f"tls_ca ({ca})"
    try:
        made = ssl.create_default_context(cafile=ca and str(ca))
        if own is not None:
            named = f"tls_certificate ({own}) with tls_key ({key or 'not set: in the same file'})"
            made.load_cert_chain(own, key)
    except OSError as error:  # ssl.SSLError too
        raise AleError(f"{named} can't be used: {error}") from None
    return {"tls": made}


def _is_of_use(record: logging.LogRecord) -> bool:
    """False for a warning of asyncio about nats-py, at the end of each connection with TLS."""
    return not record.getMessage().startswith("returning true from eof_received()")
