"""A policy with an expert before it: what is forced, and what is sampled."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ale.errors import LLMError
from ale.protocols import Policy, Start
from ale.types import Completion, CompletionRequest, LLMCapabilities, Message


class ExpertGuidedLLM:
    """Says what the expert says until the expert falls silent; from there on the policy speaks.

    Args:
        start: with an expert, or with what an expert would say at the task's own beginning.
        arrived: called in between, once.
    """

    def __init__(
        self, policy: Policy, start: Start, arrived: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.expert_next: Mapping[str, Any] | None = None
        """What the expert says where the policy begins: see `Start.next_action`."""
        self._policy = policy
        self._expert = None if start.expert is None else start.expert()
        self._ahead = None if start.next_action is None else start.next_action()
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
        if self._ahead is not None:
            said, self._ahead = self._ahead.answer(request), None
            if said is not None:
                self.expert_next = await self._written(request, said)
        return await self._policy.complete(request)

    async def _written(self, request: CompletionRequest, said: Message) -> Mapping[str, Any]:
        try:
            trace = (await self._policy.force(request, said)).tokens
        except LLMError as error:
            # Nothing hangs on it but imitation: the policy's own answer may fit where this doesn't.
            return {"left_out": str(error)}
        assert trace is not None, "a policy is exact to the token"
        parts = ("output_ids", "logprobs", "policy_versions")
        return {"turn": request.turn, **{name: list(getattr(trace, name)) for name in parts}}

    async def aclose(self) -> None:
        """Nothing: the policy is closed by the run."""
