"""A model by way of litellm.

litellm's own retries are off, so that every provider is asked again by one rule, with a deadline
and a seeded jitter. Token traces are not offered: what litellm keeps of a server's token ids
differs by provider and version; `ale-llm-openai` asks such servers itself.
"""

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import openai

from ale.errors import LLMError
from ale.plugin import BuildContext, Secret
from ale.types import Completion, CompletionRequest, LLMCapabilities, Sampling
from ale_llm_litellm.options import LiteLLMOptions
from ale_llm_litellm.quiet import load
from ale_openai_wire import (
    Answer,
    Fault,
    Redactor,
    RetryPolicy,
    completion,
    effective,
    from_mapping,
    messages,
    persist,
    sampling_fields,
    status_fault,
    tools,
    turn_seed,
)


class LiteLLM:
    """A model of any provider that litellm knows."""

    def __init__(
        self, options: LiteLLMOptions, *, key: Secret | None, context: BuildContext
    ) -> None:
        self._options = options
        self._context = context
        self._key = key
        self._litellm = load()
        self._redact = Redactor(None if key is None else key.value)
        self._policy = RetryPolicy(
            max_retries=options.max_retries,
            min_wait_s=options.retry_min_s,
            max_wait_s=options.retry_max_s,
            timeout_s=options.timeout_s,
            deadline_s=options.deadline_s,
        )
        self._defaults = Sampling(
            temperature=options.temperature, top_p=options.top_p, max_tokens=options.max_tokens
        )
        self._gate = asyncio.Semaphore(options.max_concurrency)
        self._seeded = options.send_seed and self._takes_seed()
        self._closed = False

    def __repr__(self) -> str:
        return f"<LiteLLM {self._options.model}>"

    @property
    def capabilities(self) -> LLMCapabilities:
        """Tools as the options say; never token ids."""
        return LLMCapabilities(tools=self._options.tools)

    async def complete(self, request: CompletionRequest) -> Completion:
        """One answer, after as many attempts as the options allow.

        Raises:
            ContextLengthError: the conversation is too long for the model.
            LLMError: no answer; the message has what each attempt met.
        """
        if self._closed:
            raise LLMError(f"{self!r} is closed")
        if request.tools and not self._options.tools:
            raise LLMError(f"{self!r} takes no tools: its option 'tools' is off")
        fields = self._fields(request)
        jitter = f"{self._context.seed}/{request.conversation.episode_id}/{request.turn}"
        async with self._gate:
            answer = await persist(
                lambda: self._attempt(fields),
                self._policy,
                where=self._options.model,
                rng=random.Random(jitter),  # noqa: S311
                monotonic=self._context.monotonic,
            )
        return completion(answer, turn=request.turn, model=self._options.model)

    async def aclose(self) -> None:
        """Refuse further requests. litellm keeps connections for the whole process, not per model;
        they end with it.
        """
        self._closed = True

    def _takes_seed(self) -> bool:
        return "seed" in (self._litellm.get_supported_openai_params(self._options.model) or ())

    def _fields(self, request: CompletionRequest) -> dict[str, Any]:
        options = self._options
        fields: dict[str, Any] = {
            "model": options.model,
            "messages": messages(request.messages, reasoning_field=options.reasoning_field),
            "api_base": options.api_base,
            "api_key": None if self._key is None else self._key.value,
            "timeout": options.timeout_s,
            "drop_params": options.drop_params,
            "num_retries": 0,
            "max_retries": 0,
            **sampling_fields(effective(request.sampling, self._defaults)),
        }
        if request.tools:
            fields["tools"] = tools(request.tools)
            # Else litellm looks whether a tool is one of an MCP gateway's, for which it imports
            # its proxy, which needs packages that it does not depend on (seen with 1.106).
            fields["_skip_mcp_handler"] = True
        if self._seeded:
            fields["seed"] = turn_seed(request.conversation, request.turn)
        return {**fields, **options.extra}

    async def _attempt(self, fields: dict[str, Any]) -> Answer:
        try:
            response = await self._litellm.acompletion(**fields)
        except self._litellm.ContextWindowExceededError as error:
            said = self._redact(str(error))
            fault = Fault(said, transient=False, context_length=True)
        except openai.OpenAIError as error:  # the base of all that litellm raises of providers
            fault = self._fault(error)
        else:
            return _answer(response.model_dump())
        # Out here, litellm's error, which has the request in it, is no longer the context.
        raise fault

    def _fault(self, error: openai.OpenAIError) -> Fault:
        status = getattr(error, "status_code", None)
        if not isinstance(status, int):
            return Fault(self._redact(str(error)), transient=False)
        variable = self._options.api_key_env
        return status_fault(
            status,
            str(error),
            getattr(error, "litellm_response_headers", None) or {},
            redact=self._redact,
            key="the key" if variable is None else f"the key in {variable}",
            clock=self._context.clock,
        )


def _answer(body: Mapping[str, Any]) -> Answer:
    """litellm's object as an answer.

    litellm turns reasons that it does not know into ``stop``; where it keeps the provider's own
    word, that is the one to be judged.
    """
    try:
        answer = from_mapping(body)
    except ValueError as error:
        raise Fault(f"the answer can't be read ({error})", transient=True) from None
    own = (body["choices"][0].get("provider_specific_fields") or {}).get("native_finish_reason")
    if own is not None and answer.choices[0].finish_reason == "stop":
        answer.choices[0].finish_reason = own
    return answer
