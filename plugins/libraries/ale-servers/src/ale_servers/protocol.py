"""What an inference server has to do to sample for training, and the errors that it raises."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from ale.errors import AleError, ContextLengthError, LLMError
from ale_servers.records import (
    HoldRequest,
    Interruption,
    Lease,
    Sampled,
    SampleRequest,
    ServerStatus,
    Weights,
)


class NotSampledError(LLMError):
    """The request was not begun, so it may be sent again, to this server or another."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=True)


class WeightsError(AleError):
    """The weights can't be taken; the server keeps its previous ones."""


class HeldError(WeightsError):
    """The weights are not taken, because another run holds the server."""


REFUSALS: Mapping[str, type[ContextLengthError | NotSampledError | WeightsError]] = {
    "context": ContextLengthError,
    "not-sampled": NotSampledError,
    "held": HeldError,  # before the class that it is of
    "weights": WeightsError,
}
"""Errors by the kind of refusal that stands for them on the wire."""


def check_ids(request: SampleRequest, vocabulary: int) -> None:
    """Refuse ids at which some engines fail, with every answer in progress.

    Raises:
        LLMError: an id is not in the vocabulary of this size.
    """
    highest = max((*request.prompt_ids, *request.answer_ids, *request.forced_ids))
    if highest >= vocabulary:
        raise LLMError(f"token id {highest} is outside the model's vocabulary of {vocabulary}")


@runtime_checkable
class InferenceServer(Protocol):
    """A server that samples for training, or a client of one."""

    async def sample(self, request: SampleRequest) -> Sampled:
        """Sample one answer. Many calls may run at once; they are held while the server is paused.

        Cancelling the call ends the sampling.

        Raises:
            ContextLengthError: the ids fill the context.
            NotSampledError: nothing was sampled, and nothing will be.
            LLMError: the server failed; something may have been sampled.
        """
        ...

    async def abort(self, ids: tuple[str, ...] | None = None) -> None:
        """End these requests, or all, with what they have so far; unknown ids are ignored."""
        ...

    async def pause(self, mode: Interruption, seconds: float) -> None:
        """Sample nothing from now on, until `resume` or for this many seconds. Idempotent; a pause
        with ``abort`` also ends the requests that an earlier pause held.
        """
        ...

    async def prepare(self, weights: Weights) -> None:
        """Read and check weights while sampling continues under the present ones.

        Raises:
            WeightsError: they can't be read, or belong to another model.
        """
        ...

    async def update(self, weights: Weights) -> None:
        """Sample from these weights: each token from now on carries their version, and nothing
        computed from the old weights is used again. Either all weights are taken, or none.

        Raises:
            WeightsError: as for `prepare`.
        """
        ...

    async def resume(self) -> None:
        """End a pause. Idempotent."""
        ...

    async def status(self) -> ServerStatus:
        """The server's identity, weights and load. Answers within a moment, even when paused."""
        ...


@runtime_checkable
class HasServer(Protocol):
    """A model component that is also a server for training, which `ale serve` then offers."""

    @property
    def server(self) -> InferenceServer:
        """Samples for clients that have ids."""
        ...


@runtime_checkable
class Leased(Protocol):
    """A client of a server may also be this: then the server knows which run changes its weights.

    The routes of `web` are that for every `InferenceServer` behind them.
    """

    async def hold(self, asked: HoldRequest) -> Lease | None:
        """Begin or renew a lease; returns the asker's, or that of the run that excludes it.

        None if the server keeps no leases.

        Raises:
            LLMError: the server can't be reached.
        """
        ...

    async def release(self, run: str, adapter: str) -> None:
        """End a run's lease, if it has one.

        Raises:
            LLMError: the server can't be reached.
        """
        ...
