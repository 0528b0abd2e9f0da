"""A third-party server program: what a gateway asks of it over HTTP."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import aiohttp
from attrs import define, frozen

from ale.errors import ContextLengthError, LLMError
from ale_servers.client import Connections, failures_named
from ale_servers.records import Interruption, SampleReason, SampleRequest, Weights

POLL_S = 0.25
"""Seconds between looks at a program that is starting."""
_GET_S = 10.0
_TOO_LONG = ("maximum model length", "context length")
"""Texts by which programs say that a prompt does not fit."""


class RefusedError(LLMError):
    """The program answered with an error.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, transient=status >= 500)
        self.status = status


@frozen(kw_only=True)
class Answered:
    """The new tokens of an answer."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    labels: tuple[str, ...]
    """For each token, the label of its weights, as given to `Program.load`."""
    reason: SampleReason


class Program(Protocol):
    """The part of a server program's API that a gateway needs."""

    async def is_ready(self) -> bool:
        """Does the program answer? False while it starts."""
        ...

    async def begin(self, label: str) -> None:
        """Called after each start: the weights that the program started with get this label."""
        ...

    async def sample(self, request: SampleRequest, model: str | None) -> Answered:
        """Sample; an aborted request returns what it has so far. The ids may fill the context.

        Args:
            model: an adapter's name, as given to `load_adapter`.

        Raises:
            NotSampledError, LLMError: as for `InferenceServer.sample`.
        """
        ...

    async def score(self, request: SampleRequest, model: str | None) -> tuple[float, ...]:
        """The log-probabilities of `request.forced_ids`, at temperature 1."""
        ...

    async def abort(self, ids: Sequence[str]) -> None:
        """End requests; those that the program does not know (yet) are ignored."""
        ...

    async def pause(self, mode: Interruption) -> None:
        """After the reply, sample nothing; forget all keys and values."""
        ...

    async def resume(self) -> None:
        """End a pause."""
        ...

    async def check(self, weights: Weights) -> None:
        """Is the program able to read these weights, which the gateway can?

        Raises:
            WeightsError: it isn't.
        """
        ...

    async def load(self, weights: Weights, label: str) -> None:
        """Take weights, while the program is paused."""
        ...

    async def load_adapter(self, name: str, folder: Path) -> None:
        """Add an adapter under a name that was never used before.

        Raises:
            RefusedError: the program does not take it, and keeps what it had.
        """
        ...

    async def unload_adapter(self, name: str) -> None:
        """Remove an adapter that no request uses."""
        ...


@define(eq=False)
class Asked:
    """A program behind a URL of this machine."""

    url: str
    """Without a slash at the end."""
    _connections: Connections
    """Kept open between requests."""
    _key: str | None = None
    """The program answers nobody without it."""

    async def post(
        self, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = 600.0
    ) -> Any:
        """The program's answer: decoded JSON, or text.

        Raises:
            NotSampledError: it can't be reached.
            ContextLengthError: it says that the prompt is too long.
            RefusedError: it answered with another error.
            LLMError: the connection was lost, or there was no answer in time.
        """
        return await self._asked("POST", path, body, timeout_s)

    async def get(self, path: str) -> Any:
        """As `post`."""
        return await self._asked("GET", path, None, _GET_S)

    async def _asked(self, verb: str, path: str, body: Any, timeout_s: float | None) -> Any:
        limit = aiohttp.ClientTimeout(total=timeout_s, sock_connect=5.0)
        headers = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        with failures_named(self.url, path, timeout_s):
            async with self._connections.session().request(
                verb, f"{self.url}{path}", json=body, headers=headers, timeout=limit
            ) as response:
                text = await response.text()
                if response.status != 200:
                    message = f"{path} of {self.url} gave status {response.status}: {text[:600]}"
                    if any(said in message for said in _TOO_LONG):
                        raise ContextLengthError(message)
                    raise RefusedError(message, response.status)
                return await response.json() if "json" in response.content_type else text


async def until_ready(program: Program) -> None:
    """Wait until a program answers."""
    while True:
        with contextlib.suppress(LLMError):
            if await program.is_ready():
                return
        await asyncio.sleep(POLL_S)


def free_port() -> int:
    """A port of this machine that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def without(environ: Mapping[str, str], *names: str) -> dict[str, str]:
    """An environment without some variables."""
    return {name: value for name, value in {**os.environ, **environ}.items() if name not in names}
