"""What an inference server has to do to sample for training, and its errors."""

from typing import Protocol, runtime_checkable

from ale.errors import AleError, LLMError
from ale_servers.records import Interruption, Sampled, SampleRequest, ServerStatus, Weights


class NotSampledError(LLMError):
    """The request was not begun, so that it may be sent again, to this server or another."""

    def __init__(self, message: str) -> None:
        super().__init__(message, transient=True)


class WeightsError(AleError):
    """The weights can't be taken; the server still has those that it had."""


@runtime_checkable
class InferenceServer(Protocol):
    """A server that samples for training, or a client of one."""

    async def sample(self, request: SampleRequest) -> Sampled:
        """Sample one answer. Called for many at once; held while the server is paused.

        Cancelling the call ends the sampling.

        Raises:
            ContextLengthError: the ids fill the context.
            NotSampledError: nothing was sampled, and nothing will be.
            LLMError: the server failed; something may have been sampled.
        """
        ...

    async def abort(self, ids: tuple[str, ...] | None = None) -> None:
        """End requests, or all, with what they have so far; unknown ids are ignored."""
        ...

    async def pause(self, mode: Interruption, seconds: float) -> None:
        """Sample nothing from now on, until `resume`, or for so many seconds. Idempotent; a pause
        by ``abort`` also ends what an earlier one held.
        """
        ...

    async def prepare(self, weights: Weights) -> None:
        """Read and check weights while sampling continues under the present ones.

        Raises:
            WeightsError: they can't be read, or are not of this model.
        """
        ...

    async def update(self, weights: Weights) -> None:
        """Sample from these weights: each token from now on carries their version, and nothing
        computed from the old weights is used again. All of them are taken, or none.

        Raises:
            WeightsError: as `prepare`.
        """
        ...

    async def resume(self) -> None:
        """End a pause. Idempotent."""
        ...

    async def status(self) -> ServerStatus:
        """What it is, has and does. Answered within a moment, paused or not."""
        ...
