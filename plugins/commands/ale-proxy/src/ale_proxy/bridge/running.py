"""Starts the bridge, alone or on the server of a proxy."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from attrs import frozen

from ale.errors import InputError
from ale.runs import Registry
from ale_openai_wire import check_exposed
from ale_proxy.bridge.api import Keys, routes_of
from ale_proxy.bridge.assignments import Assignments
from ale_proxy.running import (
    ProxyOptions,
    forwarding,
    key_in,
    listening,
    recorded,
    run_to_end,
    serve,
    server_url,
)
from ale_proxy.sessions import Sessions


@frozen(kw_only=True)
class BridgeOptions:
    """What ``ale workers bridge`` is started with."""

    proxy: ProxyOptions
    """Its `upstream` is empty where there is no proxy on the same server."""
    lease_s: float = 600.0
    worker_key_env: str | None = None


def run(options: BridgeOptions, registry: Registry, say: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. What is assigned and not graded then stays open.

    Raises:
        InputError: an option is wrong.
        StoreError: the run directory can't be written.
        AleError: the bridge can't listen at the address.
    """
    proxy = options.proxy
    if proxy.upstream:
        server_url(proxy.upstream, "--upstream")
    if options.worker_key_env and not proxy.key_env:
        message = "a key for workers needs one for managers too"
        raise InputError.of(message, path="--worker-key-env", expected="--key-env")
    keys = Keys(
        manager=key_in(proxy.key_env, "--key-env"),
        worker=key_in(options.worker_key_env, "--worker-key-env"),
    )
    if keys.worker is not None and keys.worker == keys.manager:
        message = "the keys of managers and of workers are the same, so a worker could grade itself"
        raise InputError.of(message, path="--worker-key-env")
    check_exposed(
        proxy.host,
        has_key=keys.manager is not None,
        option="--key-env",
        harm="assign tasks and grade them",
    )
    with recorded("bridge", proxy, proxy.upstream, registry, keys.all) as sessions:
        bridge = bridging(options, sessions, keys)
        run_to_end(serve("bridge", bridge, proxy, sessions, say))


@asynccontextmanager
async def bridging(
    options: BridgeOptions, sessions: Sessions, keys: Keys | None = None
) -> AsyncIterator[str]:
    """Answer requests while the block runs; ``http://HOST:PORT``.

    Raises:
        OSError: the address is taken, or does not belong to this machine.
    """
    proxy, keys = options.proxy, keys or Keys()
    assignments = Assignments(sessions, lease_s=options.lease_s, rewrites=not proxy.upstream)
    routes = routes_of(assignments, keys)
    async with AsyncExitStack() as stack:
        if proxy.upstream:
            upstream = server_url(proxy.upstream)
            forwards = forwarding(proxy, upstream, sessions, keys.manager, keys.all)
            routes += await stack.enter_async_context(forwards)
        serving = listening(proxy, routes, sessions)
        yield await stack.enter_async_context(serving)
