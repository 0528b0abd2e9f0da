"""An expert-guided policy: the expert's turns are forced, later turns are sampled."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ale.errors import LLMError
from ale.middleware import WrappedLLM
from ale.protocols import Policy, Start
from ale.types import Completion, CompletionRequest, Message


class ExpertGuidedLLM(WrappedLLM):
    """Answers with the expert's messages until the expert has none left, then with the policy's.

    Args:
        start: a start with an expert, or with an expert's next action.
        expert_finished: called once, between the expert's last turn and the policy's first.
    """

    def __init__(
        self,
        policy: Policy,
        start: Start,
        expert_finished: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(policy)
        self.expert_next: Mapping[str, Any] | None = None
        """The expert's next action, once the policy has taken over: see `Start.next_action`."""
        self._policy = policy
        self._expert = None if start.expert is None else start.expert()
        self._next_action = None if start.next_action is None else start.next_action()
        self._expert_finished = expert_finished

    async def complete(self, request: CompletionRequest) -> Completion:
        """One answer.

        Raises:
            ReplayError: the observations differ from those that the expert saw, or the sandbox is
                in another state.
            LLMError: as for `Policy.complete`.
        """
        if self._expert is not None:
            answer = self._expert.answer(request)
            if answer is not None:
                return await self._policy.force(request, answer)
            self._expert = None
            if self._expert_finished is not None:
                await self._expert_finished()
        if self._next_action is not None:
            answer, self._next_action = self._next_action.answer(request), None
            if answer is not None:
                self.expert_next = await self._tokens_of(request, answer)
        return await self._policy.complete(request)

    async def _tokens_of(self, request: CompletionRequest, answer: Message) -> Mapping[str, Any]:
        try:
            trace = (await self._policy.force(request, answer)).tokens
        except LLMError as error:
            # Only imitation needs this: the policy's own answer may fit even if this one doesn't.
            return {"left_out": str(error)}
        assert trace is not None, "a policy is exact to the token"
        parts = ("output_ids", "logprobs", "policy_versions")
        return {"turn": request.turn, **{name: list(getattr(trace, name)) for name in parts}}
