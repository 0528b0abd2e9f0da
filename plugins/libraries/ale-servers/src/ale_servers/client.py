"""A server of the protocol, asked over HTTP."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import aiohttp
import msgspec

from ale.errors import AleError, LLMError, LLMLostError
from ale_servers.protocol import REFUSALS, NotSampledError
from ale_servers.records import (
    AbortRequest,
    Entry,
    HoldRequest,
    Interruption,
    Lease,
    PauseRequest,
    Refusal,
    ReleaseRequest,
    Sampled,
    SampleRequest,
    ServerStatus,
    Weights,
)

CONNECT_S = 5.0
STATUS_S = 10.0
"""Seconds to wait for the answer to a request that takes no time."""
CONTROL_S = 600.0
"""Seconds to wait while a server reads weights and takes them."""
_IDLE_S = 3.0
"""Below a server's own limit (5 s in vLLM and uvicorn, 75 s in `ale serve`), so that no request is
sent over a connection that the server is closing."""

_NOT_FOUND = 404

T = TypeVar("T")
_JSON = {"Content-Type": "application/json"}


class _UnknownRouteError(LLMError):
    """The server has no such route."""


class Connections:
    """The connections of a client to all servers, kept open between requests.

    Args:
        key: sent as the bearer token.
    """

    def __init__(self, key: str | None = None) -> None:
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def session(self) -> aiohttp.ClientSession:
        """The session of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            # No limit: the sender decides how many requests run.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S)
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                skip_auto_headers=("User-Agent",),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            self._loop = loop
        return self._session

    async def aclose(self) -> None:
        """Close the connections. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class HTTPServer:
    """A server behind a URL. An `InferenceServer`.

    Args:
        entry: the server's address.
        connections: shared with the clients of other servers.
    """

    def __init__(self, entry: Entry, connections: Connections) -> None:
        self._url = entry.url
        self._connections = connections

    async def sample(self, request: SampleRequest) -> Sampled:
        """As `InferenceServer.sample`; has no time limit of its own."""
        return await self._asked("sample", request, Sampled, timeout_s=None)

    async def abort(self, ids: tuple[str, ...] | None = None) -> None:
        """As `InferenceServer.abort`."""
        await self._posted("abort", AbortRequest(ids=ids))

    async def pause(self, mode: Interruption, seconds: float) -> None:
        """As `InferenceServer.pause`."""
        await self._posted("pause", PauseRequest(mode=mode, seconds=seconds))

    async def prepare(self, weights: Weights) -> None:
        """As `InferenceServer.prepare`."""
        await self._posted("prepare", weights, timeout_s=CONTROL_S)

    async def update(self, weights: Weights) -> None:
        """As `InferenceServer.update`."""
        await self._posted("update", weights, timeout_s=CONTROL_S)

    async def resume(self) -> None:
        """As `InferenceServer.resume`."""
        await self._posted("resume", {})

    async def status(self) -> ServerStatus:
        """As `InferenceServer.status`."""
        return await self._asked("status", {}, ServerStatus, timeout_s=STATUS_S)

    async def hold(self, asked: HoldRequest) -> Lease | None:
        """As `protocol.Leased.hold`."""
        try:
            return await self._asked("hold", asked, Lease, timeout_s=STATUS_S)
        except _UnknownRouteError:
            return None

    async def release(self, run: str, adapter: str) -> None:
        """As `protocol.Leased.release`."""
        with suppress(_UnknownRouteError):
            await self._posted("release", ReleaseRequest(run=run, adapter=adapter))

    async def _asked(self, what: str, body: object, kind: type[T], timeout_s: float | None) -> T:
        answered = await self._posted(what, body, timeout_s)
        try:
            return msgspec.json.decode(answered, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LLMError(f"{self._url} does not answer by ale's protocol: {error}") from error

    async def _posted(self, what: str, body: object, timeout_s: float | None = STATUS_S) -> bytes:
        limit = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        url = f"{self._url}/ale/{what}"
        data, session = msgspec.json.encode(body), self._connections.session()
        with failures_named(self._url, f"'{what}'", timeout_s):
            async with session.post(url, data=data, headers=_JSON, timeout=limit) as response:
                content = await response.read()
                if response.status != 200:
                    raise self._error(response.status, content)
                return content

    def _error(self, status: int, content: bytes) -> AleError:
        try:
            refusal = msgspec.json.decode(content, type=Refusal)
        except (msgspec.DecodeError, UnicodeDecodeError):
            message = f"{self._url} answered with status {status}, not by ale's protocol"
            hint = "; is it an ale engines with a model that samples by token ids?"
            if status == _NOT_FOUND:
                return _UnknownRouteError(message + hint)
            return LLMError(message + hint, transient=status >= 500)
        message = f"{self._url}: {refusal.message}"
        if refusal.kind in REFUSALS:
            return REFUSALS[refusal.kind](message)
        return LLMError(message, transient=refusal.kind == "failed")


@contextmanager
def failures_named(url: str, what: str, timeout_s: float | None) -> Iterator[None]:
    """Name the server and the request in the failures of a connection.

    Raises:
        NotSampledError: the server can't be reached.
        LLMLostError: the connection was lost.
        LLMError: there was no answer in time.
    """
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise NotSampledError(f"{url} can't be reached: {error}") from error
    except TimeoutError as error:
        message = f"{url} gave no answer to {what} within {timeout_s:g} s"
        raise LLMError(message, transient=True) from error
    except aiohttp.ClientError as error:
        reason = str(error) or type(error).__name__
        raise LLMLostError(f"the connection to {url} was lost: {reason}") from error
