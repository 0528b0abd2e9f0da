"""A policy with an expert before it: what is forced, and what is sampled."""

from collections.abc import Awaitable, Callable

from ale.protocols import Expert, Policy
from ale.types import Completion, CompletionRequest, LLMCapabilities


class Guided:
    """Says what the expert says until the expert falls silent; from there on the policy speaks.

    Args:
        arrived: called in between, once.
    """

    def __init__(
        self, policy: Policy, expert: Expert, arrived: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._policy = policy
        self._expert: Expert | None = expert
        self._arrived = arrived

    @property
    def capabilities(self) -> LLMCapabilities:
        """Those of the policy."""
        return self._policy.capabilities

    async def complete(self, request: CompletionRequest) -> Completion:
        """One answer.

        Raises:
            ReplayError: the expert saw something else here, or the sandbox is not there.
            LLMError: as the policy's.
        """
        if self._expert is not None:
            said = self._expert.answer(request)
            if said is not None:
                return await self._policy.force(request, said)
            self._expert = None
            if self._arrived is not None:
                await self._arrived()
        return await self._policy.complete(request)

    async def aclose(self) -> None:
        """Nothing: the policy is closed by the run."""
