"""Builds a model, serves it over HTTP, and closes it at the end."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from pathlib import Path
from typing import Any

import uvicorn
from attrs import frozen
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from ale.errors import AleError, InputError
from ale.plugin import BuildContext
from ale.processes import announced
from ale.runs import Registry, build_choice, parse_choice, read_sections
from ale.strict import Node
from ale_nats_client.options import ServerOptions
from ale_openai_wire import Admission, cannot_listen, check_exposed, key_from
from ale_openai_wire.listening import HEAD_S
from ale_servers.places import registry_at
from ale_servers.registry import Writable, namesake, own_entry, registered
from ale_serving.serve.answering import Served

KEEP_ALIVE_S = 75
"""Seconds that an idle connection stays open: longer than clients keep one, so that none sends a
request into a connection that is being closed."""
SHUTDOWN_S = 2
"""Seconds for requests in progress when the server ends; then they are cancelled."""


@frozen(kw_only=True)
class Endpoint:
    """Address, name and key of the server."""

    host: str
    port: int
    name: str | None = None
    api_key_env: str | None = None
    register: Path | ServerOptions | None = None
    """Registry of servers: a folder, or a bucket of NATS."""
    register_as: str = ""
    end_with_stdin: bool = False
    allow_host: tuple[str, ...] = ()
    """Further names that requests may call the server by."""


def on_stderr(message: str) -> None:
    """Show a message beside the URL, which is on stdout."""
    print(message, file=sys.stderr)


def chosen(
    llm: str | None,
    config: Path | None,
    registry: Registry | None = None,
    say: Callable[[str], None] = on_stderr,
) -> Node:
    """The section ``llm``: as written on the command line, or of a config.

    Args:
        registry: gets what the plugin files of the config implement.
        say: shows which other sections the config has.

    Raises:
        InputError: the file can't be read or has no such section.
    """
    if llm is not None:
        return parse_choice(llm, option="LLM")
    assert config is not None
    registry = registry or Registry()
    root = read_sections(config, registry, command="ale serve", uses=("llm",), others=say)
    return root.section("llm")


def run(section: Node, registry: Registry, endpoint: Endpoint, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        InputError: the model can't be built, or the key's variable is not set.
        AleError: the server can't listen at the address.
    """
    environ = dict(os.environ)
    key = key_from(endpoint.api_key_env, environ, path="--api-key-env")
    harm = "use the model, and change its weights,"
    has_key, option = key is not None, "--api-key-env"
    check_exposed(endpoint.host, has_key=has_key, option=option, harm=harm)
    name, llm = build_choice(section, "llm", registry, BuildContext(environ=environ))
    served = Served(
        llm=llm,
        name=endpoint.name or _model_name(section) or name,
        key=None if key is None else key.value,
        admission=Admission.at(endpoint.host, endpoint.allow_host),
    )
    if endpoint.register is not None and served.inference is None:
        message = f"the model {name} does not sample by token ids, so no run can use it as a server"
        hint = "register a model of type policy or vllm-server"
        raise InputError.of(message, path="--register", hint=hint)
    if endpoint.register is not None:
        _check_name(registry_at(endpoint.register, environ), endpoint.register_as)
    asyncio.run(_serve(served, endpoint, say))


def _check_name(registry: Writable, name: str) -> None:
    """Raises `InputError` where a running server of this machine has the name in the registry."""
    own = own_entry("", name)
    try:
        other = namesake(registry, own)
    except ConnectionError as error:
        raise AleError(f"the server failed: {error}") from error
    finally:
        registry.close()
    if other is not None:
        message = f"the server at {other.url} has the name '{own.name}' in {registry}"
        raise InputError.of(message, path="--register-as", hint="another name")


def _model_name(section: Node) -> str | None:
    node = section.get("model")
    return node.value if node is not None and isinstance(node.value, str) else None


class _Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that is closed where nothing has been asked by `HEAD_S` seconds."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(HEAD_S, self._close_if_silent)

    def _close_if_silent(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The command handles signals itself: it has a model to close."""
        yield


async def _serve(served: Served, endpoint: Endpoint, say: Callable[[str], None]) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    if endpoint.end_with_stdin:
        loop.add_reader(0, _end_when_closed, ended)
    try:
        if served.inference is not None:
            # It may have to start, or to read all its weights: whoever checks it waits for seconds.
            await _first_of(served.inference.status(), ended.wait())
        if not ended.is_set():
            async with AsyncExitStack() as stack:
                url = await _listened(stack, served, endpoint)
                await stack.enter_async_context(_registered(endpoint, url))
                stack.enter_context(announced("server", url=url))
                say(url)
                await ended.wait()
    except OSError as error:
        raise AleError(f"the server failed: {error}") from error
    finally:
        await served.fetched.aclose()
        await served.llm.aclose()


async def _listened(stack: AsyncExitStack, served: Served, endpoint: Endpoint) -> str:
    try:
        return await stack.enter_async_context(listening(served, endpoint))
    except OSError as error:
        raise cannot_listen(endpoint.host, endpoint.port, error) from error


async def _first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Wait for one of them, and cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in others:
        task.cancel()
    await asyncio.wait(tasks)
    for task in done:
        task.result()


def _end_when_closed(ended: asyncio.Event) -> None:
    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        ended.set()


def _registered(endpoint: Endpoint, url: str) -> AbstractAsyncContextManager[None]:
    """An entry in the registry, if one is asked for, while the block runs."""
    if endpoint.register is None:
        return nullcontext()
    registry = registry_at(endpoint.register, os.environ)
    return registered(registry, own_entry(url, endpoint.register_as))


@asynccontextmanager
async def listening(served: Served, endpoint: Endpoint) -> AsyncIterator[str]:
    """Answer requests while the block runs; the base URL.

    Raises:
        OSError: the address is taken, or does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    with socket.create_server(
        (endpoint.host, endpoint.port), family=family, backlog=1024
    ) as listener:
        config = uvicorn.Config(
            served.app(),
            lifespan="off",
            access_log=False,
            http=_Connection,
            log_level="critical",  # what fails is answered, and printed by the one who answers
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        address, port = listener.getsockname()[:2]
        try:
            # Connections from now on wait in the socket's queue until the server accepts them.
            yield f"http://{f'[{address}]' if ':' in address else address}:{port}/v1"
        finally:
            server.should_exit = True
            await serving
