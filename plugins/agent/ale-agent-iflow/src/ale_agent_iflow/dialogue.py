"""The messages sent to the model, compacted when the conversation grows too long."""

from ale.agents import EndedError
from ale.errors import ContextLengthError
from ale.protocols import AgentContext
from ale.types import Completion, CompletionRequest, Message, Stop, ToolSpec, Turn
from ale_agent_iflow.context import Exchange, Gauge, History, compact
from ale_agent_iflow.options import IflowOptions

REFUSALS = 2
"""Compactions after a provider's "too long" before giving up."""
_COMPACT_TO = 0.6
"""Share of the limit that compaction aims at."""
_KEEP_TURNS = 2
"""Latest turns that stay whole if compacting the others suffices."""


class Dialogue:
    """One episode's conversation.

    What `Trajectory.messages` and `Trajectory.tools` rebuild from the turns is what was sent.

    Args:
        specs: the tool specifications of each request.
    """

    def __init__(
        self,
        head: tuple[Message, ...],
        context: AgentContext,
        options: IflowOptions,
        specs: tuple[ToolSpec, ...],
    ) -> None:
        self._context = context
        self._options = options
        self._specs = specs
        self._history = History(head=head)
        self._gauge = Gauge.of_tools(specs)
        self._fresh = True
        self._added: tuple[Message, ...] = ()

    async def ask(self, turn: int) -> Turn:
        """The model's next answer, as a turn that has no observations yet.

        Args:
            turn: 0-based number of the completion.

        Raises:
            EndedError: the conversation can't be made to fit.
            ToolsUnsupportedError, LLMError: as `LLM.complete`.
        """
        completion = await self._complete(turn)
        sent = self._history.messages
        self._gauge = self._gauge.after(sent, completion)
        prompt, fresh = (sent, True) if self._fresh else (self._added, False)
        tools = self._specs if fresh else ()
        return Turn(prompt=prompt, fresh_context=fresh, completion=completion, tools=tools)

    def append(self, exchange: Exchange) -> None:
        """Append an exchange to the conversation."""
        self._history = self._history.add(exchange)
        self._fresh, self._added = False, exchange.reminder

    async def _complete(self, turn: int) -> Completion:
        llm, most = self._context.llm, self._context.limits.context_max_tokens
        if most is not None and self._size() > most:
            self._compact(most, f"more than {most} tokens")
        for _ in range(REFUSALS):
            try:
                return await llm.complete(self._request(turn))
            except ContextLengthError as error:
                # Half of it, or as short as it can be.
                least = self._gauge.anew().size(self._history.head)
                self._compact(max(self._size() // 2, least), str(error))
        try:
            return await llm.complete(self._request(turn))
        except ContextLengthError as error:
            raise EndedError(Stop(reason="context", detail=str(error))) from error

    def _request(self, turn: int) -> CompletionRequest:
        return CompletionRequest(
            messages=self._history.messages,
            tools=self._specs,
            conversation=self._context.conversation,
            turn=turn,
            fresh_context=self._fresh,
        )

    def _size(self) -> int:
        return self._gauge.size(self._history.messages)

    def _compact(self, limit: int, why: str) -> None:
        gauge = self._gauge.anew()
        compacted = compact(
            self._history,
            gauge.size,
            limit=limit,
            target=int(limit * _COMPACT_TO),
            keep=_KEEP_TURNS,
        )
        if compacted is None or not self._history.exchanges:
            detail = f"{why}, and compaction can't shorten it enough"
            raise EndedError(Stop(reason="context", detail=detail))
        self._history, self._gauge, self._fresh = compacted, gauge, True
