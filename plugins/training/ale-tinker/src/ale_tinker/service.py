"""A session of the SDK, which the model and its trainer share."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import tinker

from ale.errors import AleError, LLMError

SDK_ERRORS = (
    tinker.TinkerError,
    httpx.HTTPError,
    TimeoutError,
    # What the SDK raises of a result that can't be had or read, and after a failed request.
    ValueError,
    RuntimeError,
)


class Service:
    """Connects with the first call, so that a config can be checked without the service.

    Args:
        api_key: sent with each request.
        base_url: of the service; None: the SDK's own.
    """

    def __init__(self, *, api_key: str, base_url: str | None = None) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._lock = threading.Lock()
        self._client: tinker.ServiceClient | None = None

    def _connected(self) -> tinker.ServiceClient:
        with self._lock:
            if self._client is None:
                self._client = tinker.ServiceClient(api_key=self._api_key, base_url=self._base_url)
            return self._client

    async def sampler(self, model: str, path: str | None) -> tinker.SamplingClient:
        """A client that samples from a snapshot.

        Args:
            model: the base model, for a path of None.
            path: the snapshot's name at the service.
        """

        def create() -> tinker.SamplingClient:
            given = {"base_model": model} if path is None else {"model_path": path}
            return self._connected().create_sampling_client(**given).result()

        return await asyncio.to_thread(create)

    def trained(
        self, model: str, *, rank: int, seed: int, timeout_s: float
    ) -> tinker.TrainingClient:
        """A new adapter over a base model. Blocks."""
        client = self._connected()
        made = client.create_lora_training_client(model, rank=rank, seed=seed)
        return answer_of(made, timeout_s)

    def restored(self, path: str, *, timeout_s: float) -> tinker.TrainingClient:
        """A new adapter with the weights and moments of a state. Blocks."""
        made = self._connected().create_training_client_from_state_with_optimizer(path)
        return answer_of(made, timeout_s)

    async def aclose(self) -> None:
        """End the session. Idempotent; the next call begins another."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            await client.close("success")


def answer_of(future: Any, timeout_s: float) -> Any:
    """The result of a request. Blocks.

    Raises:
        TimeoutError: nothing within so many seconds.
    """
    waiting = future.future()
    try:
        return waiting.result(timeout_s)
    except TimeoutError:
        waiting.cancel()
        raise


@contextmanager
def naming_errors(what: str, kind: type[AleError] = AleError) -> Iterator[None]:
    """Raise errors of the SDK as `kind`, an `LLMError` with whether a retry may succeed."""
    try:
        yield
    except SDK_ERRORS as error:
        message = f"tinker: {what}: {_said(error)}"
        if kind is LLMError:
            raise LLMError(message, transient=_is_transient(error)) from error
        raise kind(message) from error


def _said(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return str(error) or "the service did not answer within timeout_s"
    return str(error) or type(error).__name__


def _is_transient(error: BaseException) -> bool:
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return status == 429 or status >= 500
    return isinstance(error, tinker.APIConnectionError | httpx.TransportError | TimeoutError)
