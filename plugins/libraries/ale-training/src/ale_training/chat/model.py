"""A model component that turns messages into ids, and sampled ids into messages."""

import asyncio
import os
from collections.abc import Sequence
from typing import Protocol

from attrs import define, field

from ale.errors import ContextLengthError, LLMError, ToolsUnsupportedError
from ale.types import (
    Completion,
    CompletionRequest,
    FinishReason,
    LLMCapabilities,
    Message,
    Sampling,
    TokenTrace,
    Usage,
)
from ale_servers.records import Sampled, SampleRequest
from ale_training.chat.sessions import Sessions
from ale_training.chat.stops import first_stop, truncate_at_stop
from ale_training.chat.template import ChatTemplate

_LONG = 1 << 18
"""Characters that take a good part of a second to tokenise."""


class Tokenised(Protocol):
    """A model as far as conversations with it are concerned."""

    @property
    def name(self) -> str:
        """The model's name, for records."""
        ...

    @property
    def version(self) -> int:
        """Version of the weights that sample the next token."""
        ...

    @property
    def template(self) -> ChatTemplate:
        """Renders conversations and reads answers."""
        ...

    @property
    def tokenizer_id(self) -> str:
        """As `KnowsTokenizer.tokenizer_id`."""
        ...

    @property
    def context(self) -> int:
        """Most tokens of prompt and answer together."""
        ...


@define(eq=False, repr=False, slots=False)
class TokenLLM:
    """Turns messages into ids, and sampled ids into messages, whatever samples the ids."""

    policy: Tokenised
    """Its name, version and chat template."""
    _defaults: Sampling = field(kw_only=True)
    """For options that a request leaves open; all set."""
    _context: int = field(kw_only=True)
    """Most tokens of prompt and answer together."""

    def __attrs_post_init__(self) -> None:
        self._context = min(self._context, self.policy.context)
        self._sessions = Sessions(self.policy.template)
        self._end_ids = self.policy.template.end_ids

    async def _sample(self, asked: SampleRequest, session: str) -> Sampled:
        """The answer's ids; requests of one session extend one another."""
        raise NotImplementedError

    @property
    def capabilities(self) -> LLMCapabilities:
        """All are supported, tools only if the chat template can write calls and results."""
        tools = self.policy.template.no_tools is None
        return LLMCapabilities(tools=tools, token_ids=True, logprobs=True, deterministic=True)

    @property
    def tokenizer_id(self) -> str:
        """As `KnowsTokenizer.tokenizer_id`."""
        return self.policy.tokenizer_id

    @property
    def sampling(self) -> Sampling:
        """As `TrainablePolicy.sampling`; all are set."""
        return self._defaults

    @property
    def policy_version(self) -> int:
        """Version of the weights that sample the next token."""
        return self.policy.version

    async def complete(self, request: CompletionRequest) -> Completion:
        """Sample one answer.

        Raises:
            ContextLengthError: the prompt fills the context.
            ToolsUnsupportedError: there are tools, and the chat template can't write calls.
            InputError: the chat template can't write these messages.
            LLMError: the model failed, or is closed.
        """
        asked = self._asked(request, await self._prompt(request))
        sampled = await self._sample(asked, request.conversation.episode_id)
        at = None
        if asked.stop and sampled.reason == "stop" and sampled.ids[-1] not in self._end_ids:
            at = first_stop(asked.stop, self._text(sampled.ids))
        return self._completion(request, asked, sampled, at)

    async def force(self, request: CompletionRequest, answer: Message) -> Completion:
        """The completion for a given answer, with log-probabilities from a forward pass.

        They are the model's at temperature 1 over all tokens, because a demonstration may be
        impossible under top-p. The answer ends where a sampled one would, with the token that
        completes a stop string: text after that can't be sampled and must not be imitated.

        Raises:
            ContextLengthError: prompt and answer together don't fit.
            LLMError: as for `complete`; or the answer has text after a stop string.
        """
        prompt = await self._prompt(request)
        ids, at = self._as_sampled(answer, request.sampling.stop or self._defaults.stop)
        if len(prompt) + len(ids) > self._context:
            raise self._too_long(len(prompt) + len(ids))
        asked = self._asked(request, prompt, forced=ids)
        sampled = await self._sample(asked, request.conversation.episode_id)
        return self._completion(request, asked, sampled, at)

    def _as_sampled(
        self, answer: Message, stop: tuple[str, ...]
    ) -> tuple[tuple[int, ...], int | None]:
        whole = self.policy.template.answer(answer)
        ids, at = truncate_at_stop(whole, stop, self._text)
        if at is not None:
            text = self._text(tuple(i for i in whole if i not in self._end_ids))
            found = max((each for each in stop if text.startswith(each, at)), key=len)
            rest = text[at + len(found) :].strip()
            if rest:
                raise LLMError(
                    f"a demonstrated answer has text after the stop string {found!r}, which "
                    f"can't be sampled: {rest[:80]!r}"
                )
        return ids, at

    def _text(self, ids: Sequence[int]) -> str:
        return self.policy.template.token_bytes.text(ids).text

    async def _prompt(self, request: CompletionRequest) -> tuple[int, ...]:
        if request.tools and (why := self.policy.template.no_tools):
            raise ToolsUnsupportedError(f"{why}; set agent.tool_format: text")
        if sum(len(message.content) for message in request.messages) < _LONG:
            prompt = self._sessions.prompt(request)
        else:  # other requests would wait for it
            prompt = await asyncio.to_thread(self._sessions.prompt, request)
        if len(prompt) >= self._context:
            raise self._too_long(len(prompt))
        return prompt

    def _too_long(self, n: int) -> ContextLengthError:
        return ContextLengthError(f"{n} tokens, and the context holds {self._context}")

    def _asked(
        self, request: CompletionRequest, prompt: tuple[int, ...], forced: tuple[int, ...] = ()
    ) -> SampleRequest:
        sampling, defaults = request.sampling, self._defaults
        most = _or(sampling.max_tokens, defaults.max_tokens)
        return SampleRequest(
            id=os.urandom(8).hex(),
            prompt_ids=prompt,
            forced_ids=forced,
            max_tokens=int(min(most, self._context - len(prompt))),
            temperature=_or(sampling.temperature, defaults.temperature),
            top_p=_or(sampling.top_p, defaults.top_p),
            stop_ids=tuple(self._end_ids),
            stop=sampling.stop or defaults.stop,
            # The answer depends on seed and turn alone, not on time or other requests.
            seed=f"{request.conversation.seed}/{request.turn}",
        )

    def _completion(
        self,
        request: CompletionRequest,
        asked: SampleRequest,
        sampled: Sampled,
        limit: int | None,
    ) -> Completion:
        """The record; `limit` is the position in the text where a stop string starts."""
        prompt, output = asked.prompt_ids, sampled.ids
        answer = self.policy.template.read(
            output, turn=request.turn, tools=request.tools, limit=limit
        )
        message = answer.message
        self._sessions.remember_answer(request, (*prompt, *output), len(prompt), message)
        reason: FinishReason = "length" if sampled.reason == "length" else "stop"
        if message.tool_calls and reason == "stop":
            reason = "tool_calls"
        return Completion(
            message=message,
            finish_reason=reason,
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(output)),
            model=self.policy.name,
            tokens=TokenTrace(
                prompt_ids=prompt,
                output_ids=output,
                logprobs=sampled.logprobs,
                policy_versions=sampled.versions,
                text_offsets=answer.text_offsets,
            ),
            forced=bool(asked.forced_ids),
        )


def _or(value: float | None, default: float | None) -> float:
    chosen = default if value is None else value
    assert chosen is not None, "the options set every default"
    return chosen
