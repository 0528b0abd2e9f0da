"""Starts the proxy, and ends its sessions when it is stopped."""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from attrs import frozen
from yarl import URL

from ale.errors import InputError
from ale.plugin import BuildContext
from ale.processes import announced
from ale.recording import Recording, run_folder
from ale.runs import Registry, build_choice, read_sections
from ale_openai_wire import Admission, cannot_listen, check_exposed, key_from
from ale_proxy.admission import EVERYTHING, Entrance
from ale_proxy.control import Control
from ale_proxy.forwarding import SESSION, Forwarder
from ale_proxy.sessions import Sessions

Built = tuple[str, Any]
_log = logging.getLogger(__name__)
_USES = {"middleware": "middleware", "observers": "observer"}
"""Sections of a config, and the kind of what they list."""
_COMMANDS = {"proxy": "ale proxy", "bridge": "ale workers bridge"}
CONNECT_S = 30.0
KEEP_S = 4.0
"""For which an unused connection to the server is kept: less than servers keep theirs."""
SHUTDOWN_S = 2.0
LINGER_S = 1.0
"""For which the rest of a body that was refused is still taken: some clients read no answer before
they have sent all of it."""


@frozen(kw_only=True)
class ProxyOptions:
    """What ``ale proxy`` is started with."""

    upstream: str
    host: str = "127.0.0.1"
    port: int = 8800
    run: Path | None = None
    idle_s: float = 600.0
    session_header: str = SESSION
    ask_tokens: bool = False
    logprobs_mode: Literal["raw", "processed"] = "raw"
    key_env: str | None = None
    config: Path | None = None
    allow_host: tuple[str, ...] = ()
    """Further names that requests may call the server by."""


def run(options: ProxyOptions, registry: Registry, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        InputError: an option is wrong.
        StoreError: the run directory can't be written.
        AleError: the proxy can't listen at the address.
    """
    upstream = server_url(options.upstream)
    key = key_in(options.key_env, "--key-env")
    harm = "score and end sessions"
    check_exposed(options.host, has_key=key is not None, option="--key-env", harm=harm)
    with recorded("proxy", options, str(upstream), registry) as sessions:
        proxy = proxying(options, upstream, sessions, key)
        run_to_end(serve("proxy", proxy, options, sessions, say))


@contextmanager
def recorded(
    kind: str,
    options: ProxyOptions,
    upstream: str,
    registry: Registry,
    secrets: Collection[str] = (),
) -> Iterator[Sessions]:
    """The sessions of a proxy or a bridge, which are stored while the block runs.

    Raises as `built_middleware` and `check_address`, before anything is written, or StoreError.
    """
    path = options.run or run_folder(kind)
    middleware = built_middleware(options.config, registry, kind)
    observers = built_observers(options.config, registry, kind, path)
    check_address(options)
    config = {
        "llm": {"type": f"ale-proxy/{kind}", "upstream": upstream},
        "chunker": {"type": "ale-chunkers/interaction"},
        "credit": {"type": "ale-credit/ipa"},
    }
    recording = Recording(path, config, registry, observers, report=_log.warning)
    try:
        yield Sessions(
            recording,
            idle_s=options.idle_s,
            processed=options.logprobs_mode == "processed",
            middleware=middleware,
            secrets=secrets,
        )
    finally:
        recording.close()


def run_to_end(serving: Coroutine[Any, Any, None]) -> None:
    """Run in uvloop's event loop, which takes less time for each chunk; without it in asyncio's."""
    try:
        import uvloop
    except ImportError as error:
        _log.warning("uvloop can't be used (%s): requests and chunks take longer", error)
        factory = None
    else:
        factory = uvloop.new_event_loop
    gc.freeze()  # modules stay loaded: to look through them would hold up every stream
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serving)


def server_url(text: str, option: str = "URL", example: str = "http://127.0.0.1:8000/v1") -> URL:
    """The server's URL, without the ``/v1`` at its end.

    Args:
        option: which names it, and `example` of a right one, for messages.

    Raises:
        InputError: it is no URL of HTTP, or has a password.
    """
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError.of(
            f"expected a URL, found '{text}'",
            path=option,
            expected=example,
        )
    if parts.username or parts.password or parts.query:
        message = "the URL has a user, a password or a query; the agent sends the key"
        raise InputError.of(message, path=option)
    return URL(text.rstrip("/").removesuffix("/v1"))


def built_middleware(config: Path | None, registry: Registry, kind: str = "proxy") -> list[Built]:
    """What the section ``middleware`` of a config selects, each after its component's name.

    Args:
        kind: of the command: ``proxy`` or ``bridge``.

    Raises:
        InputError: the file can't be read, has other sections or none of these, or a part can't be
            built.
    """
    return _built(config, registry, kind, "middleware", BuildContext(environ=dict(os.environ)))


def built_observers(config: Path | None, registry: Registry, kind: str, run: Path) -> list[Built]:
    """Likewise, the section ``observers``.

    Args:
        run: the directory that is recorded to.
    """
    environ = dict(os.environ)
    context = BuildContext(environ=environ, run_id=run.name, run_directory=run)
    return _built(config, registry, kind, "observers", context)


def _built(
    config: Path | None, registry: Registry, kind: str, section: str, context: BuildContext
) -> list[Built]:
    if config is None:
        return []
    command = _COMMANDS[kind]
    root = read_sections(config, registry, command=command, uses=tuple(_USES))
    found = {name: root.get(name) for name in _USES}
    if all(node is None or node.value is None for node in found.values()):
        expected = "middleware: [{type: ...}, ...], or observers"
        raise root.error(f"there is nothing that {command} uses", expected=expected)
    node = found[section]
    if node is None or node.value is None:
        return []
    if node.items is None:
        expected = f"{section}: [{{type: ...}}, ...]"
        raise node.error("it is no list", path=section, expected=expected)
    return [build_choice(item, _USES[section], registry, context) for item in node.items]


def key_in(variable: str | None, option: str) -> str | None:
    """The key in the environment variable that an option names; None where it names none.

    Raises:
        InputError: as `key_from`.
    """
    key = key_from(variable, os.environ, path=option)
    return None if key is None else key.value


async def serve(
    kind: str,
    serving: AbstractAsyncContextManager[str],
    options: ProxyOptions,
    sessions: Sessions,
    say: Callable[[str], None],
) -> None:
    """Say where it listens and where it records, and wait for SIGINT or SIGTERM.

    Args:
        kind: of process, for ``ale status``.

    Raises:
        AleError: it can't listen at the address.
    """
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    run = sessions.recording.path
    try:
        async with serving as url:
            with announced(kind, directory=run, url=url):
                say(url)
                say(str(run))
                await ended.wait()
    except OSError as error:
        raise cannot_listen(options.host, options.port, error) from error


def check_address(options: ProxyOptions) -> None:
    """Refuse an address before anything is written.

    Raises:
        AleError: it is taken, or is not one of this machine.
    """
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)
        family, *_, address = found[0]
        socket.create_server(address[:2], family=family).close()
    except OSError as error:
        raise cannot_listen(options.host, options.port, error) from error


@asynccontextmanager
async def proxying(
    options: ProxyOptions, upstream: URL, sessions: Sessions, key: str | None = None
) -> AsyncIterator[str]:
    """Answer requests while the block runs, then end every session; the base URL.

    Raises:
        OSError: the address is taken, or does not belong to this machine.
    """
    async with (
        forwarding(options, upstream, sessions, key) as routes,
        listening(options, routes, sessions) as url,
    ):
        yield f"{url}/v1"


@asynccontextmanager
async def forwarding(
    options: ProxyOptions,
    upstream: URL,
    sessions: Sessions,
    key: str | None,
    needed: Collection[str] = (),
) -> AsyncIterator[list[web.RouteDef]]:
    """The routes of the proxy, with connections to the server that are closed with the block.

    The last one is for every path.

    Args:
        key: that requests about sessions need.
        needed: keys of which requests for the server need one, if there are any.
    """
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_S)
    client = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        auto_decompress=False,
    )
    forwarder = Forwarder(
        client,
        upstream,
        sessions,
        session_header=options.session_header,
        ask_tokens=options.ask_tokens,
        keys=needed,
    )
    everything = web.route("*", EVERYTHING, forwarder.handle)
    async with client:
        yield [*Control(sessions, forwarder, key).routes(), everything]


@asynccontextmanager
async def listening(
    options: ProxyOptions, routes: Sequence[web.RouteDef], sessions: Sessions
) -> AsyncIterator[str]:
    """Answer requests while the block runs, then end the sessions; ``http://HOST:PORT``."""
    entrance = Entrance(Admission.at(options.host, options.allow_host))
    app = web.Application(middlewares=[entrance.middleware])
    app.add_routes(routes)
    runner = web.AppRunner(
        app,
        handle_signals=False,
        access_log=None,
        handler_cancellation=True,  # a client that leaves stops its sampling
        auto_decompress=False,
        shutdown_timeout=SHUTDOWN_S,
        lingering_time=LINGER_S,
    )
    await runner.setup()
    assert runner.server is not None
    idle = asyncio.create_task(sessions.end_idle())
    server: asyncio.Server | None = None
    try:
        server = await asyncio.get_running_loop().create_server(
            entrance.protocols(runner.server), options.host, options.port, backlog=1024
        )
        address, taken = server.sockets[0].getsockname()[:2]
        yield f"http://{f'[{address}]' if ':' in address else address}:{taken}"
    finally:
        if server is not None:
            server.close()
        idle.cancel()
        with suppress(asyncio.CancelledError):
            await idle
        await runner.cleanup()
        sessions.end_all()
