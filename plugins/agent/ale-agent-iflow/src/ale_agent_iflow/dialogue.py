"""The exchange of messages with the model: what is sent, folded when it grows too long."""

import asyncio

from attrs import frozen

from ale.errors import ContextLengthError
from ale.protocols import LLM
from ale.types import Completion, CompletionRequest, Conversation, Message, Stop, ToolSpec, Turn
from ale_agent_iflow.budget import EndedError
from ale_agent_iflow.context import Exchange, Gauge, History, fold

REFUSALS = 2
"""Times that a provider's "too long" is answered by folding before giving up."""


@frozen(kw_only=True)
class FoldPolicy:
    """When to fold a conversation and how far; see `context.fold`."""

    max_tokens: int | None
    fold_to: float
    keep_turns: int


class Dialogue:
    """One episode's conversation.

    Keeps the promise of `Turn.prompt`: what `Trajectory.messages` rebuilds from the turns is what
    was sent.
    """

    def __init__(
        self,
        head: tuple[Message, ...],
        *,
        llm: LLM,
        specs: tuple[ToolSpec, ...],
        gauge: Gauge,
        conversation: Conversation,
        policy: FoldPolicy,
    ) -> None:
        self._llm = llm
        self._specs = specs
        self._conversation = conversation
        self._policy = policy
        self._history = History(head=head)
        self._gauge = gauge
        self._fresh = True
        self._added: tuple[Message, ...] = ()

    async def ask(self, turn: int, timeout_s: float | None) -> Turn | None:
        """The model's next answer, as a turn that has no observations yet.

        Args:
            turn: 0-based number of the completion.
            timeout_s: seconds, after which the result is None.

        Raises:
            EndedError: the conversation can't be made to fit.
            LLMError: as `LLM.complete`.
        """
        timer = asyncio.timeout(timeout_s)
        try:
            async with timer:
                completion = await self._complete(turn)
        except TimeoutError:
            if timer.expired():
                return None
            raise
        sent = self._history.messages()
        self._gauge = self._gauge.after(sent, completion)
        prompt, fresh = (sent, True) if self._fresh else (self._added, False)
        return Turn(prompt=prompt, fresh_context=fresh, completion=completion)

    def take(self, exchange: Exchange) -> None:
        """Go on with this exchange at the conversation's end."""
        self._history = self._history.add(exchange)
        self._fresh, self._added = False, exchange.nudge

    async def _complete(self, turn: int) -> Completion:
        most = self._policy.max_tokens
        if most is not None and self._size() > most:
            self._fold(most, f"more than {most} tokens")
        for _ in range(REFUSALS):
            try:
                return await self._llm.complete(self._request(turn))
            except ContextLengthError as error:
                # Half of it, or as short as it can be.
                least = self._gauge.anew().size(self._history.head)
                self._fold(max(self._size() // 2, least), str(error))
        try:
            return await self._llm.complete(self._request(turn))
        except ContextLengthError as error:
            raise EndedError(Stop(reason="context", detail=str(error))) from error

    def _request(self, turn: int) -> CompletionRequest:
        return CompletionRequest(
            messages=self._history.messages(),
            tools=self._specs,
            conversation=self._conversation,
            turn=turn,
            fresh_context=self._fresh,
        )

    def _size(self) -> int:
        return self._gauge.size(self._history.messages())

    def _fold(self, limit: int, why: str) -> None:
        gauge = self._gauge.anew()
        folded = fold(
            self._history,
            gauge.size,
            limit=limit,
            target=int(limit * self._policy.fold_to),
            keep=self._policy.keep_turns,
        )
        if folded is None or not self._history.exchanges:
            detail = f"{why}, and folding the conversation can't help"
            raise EndedError(Stop(reason="context", detail=detail))
        self._history, self._gauge, self._fresh = folded, gauge, True
