"""The model behind a server.

The official SDK makes the request: connections, authentication, time limits, errors of status. The
body of the answer is read here, not by the SDK: within a bound of bytes, with the fields that only
some servers have (token ids, reasoning), and without building an object for each piece of a stream.
The SDK's own retries are off; `ale_openai_wire.retry` has a deadline and a seeded jitter.
"""

import asyncio
import contextlib
import logging
import random
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import openai

from ale.errors import LLMError
from ale.plugin import BuildContext, Secret
from ale.types import Completion, CompletionRequest, LLMCapabilities, Sampling
from ale_llm_openai.options import OpenAIOptions
from ale_llm_openai.stream import BrokenStreamError, StreamedError, assemble
from ale_openai_wire import (
    Answer,
    Fault,
    Redactor,
    RetryPolicy,
    completion,
    effective,
    error_fault,
    messages,
    persist,
    read_answer,
    sampling_fields,
    status_fault,
    tools,
    turn_seed,
)

_log = logging.getLogger(__name__)

_DRAIN_S = 0.1


def _transport_errors() -> tuple[type[Exception], ...]:
    """What the HTTP library under the SDK raises while a body is read.

    That library is httpx2 under newer SDKs, httpx under older ones, which pass its errors on.
    """
    modules = [sys.modules.get(name) for name in ("httpx2", "httpx")]
    return tuple(module.RequestError for module in modules if module is not None)


class OpenAILLM:
    """A model behind the OpenAI chat API."""

    def __init__(
        self, options: OpenAIOptions, *, key: Secret | None, context: BuildContext
    ) -> None:
        self._options = options
        self._context = context
        self._redact = Redactor(None if key is None else key.value)
        self._client = openai.AsyncOpenAI(
            base_url=options.base_url,
            api_key=options.placeholder_key if key is None else key.value,
            max_retries=0,
            timeout=options.timeout_s,
        )
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
        self._where = urlsplit(options.base_url).netloc.rpartition("@")[2]
        self._gate = asyncio.Semaphore(options.max_concurrency)
        self._transport_errors = _transport_errors()
        self._closed = False
        self._told = False

    def __repr__(self) -> str:
        return f"<OpenAILLM {self._options.model} at {self._where}>"

    @property
    def capabilities(self) -> LLMCapabilities:
        """As the options say: a server can't be asked what it can."""
        return LLMCapabilities(
            tools=self._options.tools,
            token_ids=self._options.return_token_ids,
            logprobs=self._options.return_token_ids,
        )

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
        sampling = effective(request.sampling, self._defaults)
        fields = self._fields(request, sampling)
        where = f"{self._options.model} at {self._where}"
        jitter = f"{self._context.seed}/{request.conversation.episode_id}/{request.turn}"
        async with self._gate:
            answer = await persist(
                lambda: self._attempt(fields),
                self._policy,
                where=where,
                rng=random.Random(jitter),  # noqa: S311
                monotonic=self._context.monotonic,
            )
        made = completion(
            answer,
            turn=request.turn,
            model=self._options.model,
            trace=self._options.return_token_ids and self._sampled_from(sampling),
        )
        self._tell_once(made)
        return made

    async def aclose(self) -> None:
        """Close the connections."""
        self._closed = True
        await self._client.close()

    def _fields(self, request: CompletionRequest, sampling: Sampling) -> dict[str, Any]:
        options = self._options
        fields: dict[str, Any] = {
            "model": options.model,
            "messages": messages(request.messages, reasoning_field=options.reasoning_field),
            **sampling_fields(sampling, max_tokens_field=options.max_tokens_field),
        }
        extra = dict(options.extra_body)
        if request.tools:
            fields["tools"] = tools(request.tools)
        if options.send_seed:
            fields["seed"] = turn_seed(request.conversation, request.turn)
        if options.stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        if options.return_token_ids:
            fields["logprobs"] = True
            extra = {"return_token_ids": True, **extra}
        return {**fields, "extra_body": extra}

    def _sampled_from(self, sampling: Sampling) -> bool:
        """Are the server's log-probabilities those of the distribution that it samples from?"""
        raw = self._options.logprobs_mode == "raw"
        return not raw or (sampling.temperature, sampling.top_p) == (1, 1)

    def _tell_once(self, made: Completion) -> None:
        if self._options.return_token_ids and made.tokens is None and not self._told:
            self._told = True
            _log.warning(
                "%s: no token trace: the server gave no token ids with a log-probability each, or "
                "the request set a temperature or top_p that raw log-probabilities don't fit",
                self._where,
            )

    async def _attempt(self, fields: dict[str, Any]) -> Answer:
        try:
            return await self._receive(fields)
        except openai.APIStatusError as error:
            fault = self._status_fault(error)
        except openai.APITimeoutError:
            fault = Fault(f"no answer within {self._options.timeout_s:g} s", transient=True)
        except openai.APIConnectionError as error:
            fault = self._connection_fault(error.__cause__ or error)
        except self._transport_errors as error:
            fault = self._connection_fault(error)
        except StreamedError as error:
            fault = error_fault(error.error, redact=self._redact)
        except BrokenStreamError as error:
            fault = Fault(self._redact(str(error)), transient=True)
        # Out here, the SDK's error, which has the request's headers, is no longer the context.
        raise fault

    async def _receive(self, fields: dict[str, Any]) -> Answer:
        create = self._client.chat.completions.with_streaming_response.create
        async with create(**fields) as response:
            chunks = self._bounded(response.iter_bytes())
            if self._options.stream:
                answer = await assemble(chunks)
                await self._drain(chunks)
                return answer
            data = b"".join([chunk async for chunk in chunks])
        try:
            return read_answer(data)
        except ValueError as error:
            raise BrokenStreamError(str(error)) from error

    async def _drain(self, chunks: AsyncIterator[bytes]) -> None:
        """Read what follows ``[DONE]``, so that the connection can be used again; nothing is lost
        where that fails.
        """
        with contextlib.suppress(TimeoutError, *self._transport_errors):
            async with asyncio.timeout(_DRAIN_S):
                async for _ in chunks:
                    pass

    async def _bounded(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        limit, received = self._options.max_response_bytes, 0
        async for chunk in chunks:
            received += len(chunk)
            if received > limit:
                raise Fault(f"the answer is longer than {limit} bytes", transient=False)
            yield chunk

    def _status_fault(self, error: openai.APIStatusError) -> Fault:
        variable = self._options.api_key_env
        key = "a request without a key; name its variable in api_key_env"
        if variable is not None:
            key = f"the key in {variable}"
        return status_fault(
            error.status_code,
            error.response.text,
            error.response.headers,
            redact=self._redact,
            key=key,
            clock=self._context.clock,
        )

    def _connection_fault(self, error: BaseException) -> Fault:
        said = self._redact(str(error)) or type(error).__name__
        return Fault(f"the connection failed ({said})", transient=True)
