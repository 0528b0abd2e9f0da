"""The model behind a server.

The official SDK makes the request: connections, authentication, timeouts, status errors. The body
of the answer is read here, not by the SDK: within a limit of bytes, with the fields that only some
servers have (token ids, reasoning), and without building an object for each chunk of a stream. The
SDK's own retries are off; `ale_openai_wire.retry` has a deadline and a seeded jitter.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import openai

from ale.errors import LLMError
from ale.plugin import BuildContext, Secret
from ale.types import Completion, CompletionRequest, LLMCapabilities, Sampling
from ale_llm_openai.options import OpenAIOptions
from ale_openai_wire import (
    ONE_TOKEN,
    Answer,
    AttemptError,
    ChatClient,
    completion,
    effective,
    error_in,
    messages,
    missing_model,
    read_answer,
    read_models,
    samples_as_model,
    sampling_fields,
    status_error,
    stream_error,
    tools,
    turn_seed,
    unreachable,
)
from ale_openai_wire.stream import BrokenStreamError, StreamedError, assemble

_log = logging.getLogger(__name__)

MAX_RESPONSE_BYTES = 64 << 20
"""A longer answer is an error, and the rest of it is not read."""
_DRAIN_S = 0.1
_LIST_S = 10.0
"""Seconds to wait for the list of models, which costs a server nothing."""


def _transport_errors(name: str) -> tuple[type[Exception], ...]:
    """A class of errors that the SDK passes on from the HTTP library it uses.

    That library is httpx2 with newer SDKs and httpx with older ones.
    """
    modules = [sys.modules.get(module) for module in ("httpx2", "httpx")]
    return tuple(getattr(module, name) for module in modules if module is not None)


class OpenAILLM(ChatClient):
    """A model behind the OpenAI chat API."""

    def __init__(
        self, options: OpenAIOptions, *, key: Secret | None, context: BuildContext
    ) -> None:
        url = urlsplit(options.base_url)
        self._server = url.netloc.rpartition("@")[2]
        self._url = f"{url.scheme}://{self._server}{url.path}"
        where = f"{options.model} at {self._server}"
        super().__init__(options, key=key, context=context, where=where)
        self._options = options
        self._client = openai.AsyncOpenAI(
            base_url=options.base_url,
            api_key=options.placeholder_key if key is None else key.value,
            max_retries=0,
            timeout=options.timeout_s,
        )
        self._transport_errors = _transport_errors("RequestError")
        self._connect_errors = _transport_errors("ConnectError")
        self._warned = False

    @property
    def capabilities(self) -> LLMCapabilities:
        """As given in the options: a server does not list what it supports."""
        return LLMCapabilities(
            tools=self._options.tools,
            token_ids=self._options.return_token_ids,
            logprobs=self._options.return_token_ids,
        )

    async def complete(self, request: CompletionRequest) -> Completion:
        """One answer, after as many attempts as the options allow.

        Raises:
            ContextLengthError: the conversation is too long for the model.
            ToolsUnsupportedError: the server takes no tools for this model.
            LLMError: no answer; the message says how each attempt failed.
        """
        sampling = effective(request.sampling, self._defaults)
        fields = self._fields(request, sampling)
        answer = await self._answer(request, lambda: self._attempt(fields))
        made = completion(
            answer,
            turn=request.turn,
            model=self._options.model,
            trace=self._options.return_token_ids and self._sampled_from(sampling),
        )
        self._warn_once(made)
        return made

    async def check(self) -> None:
        """Ask the server for its models: is it there, does it take the key, does it have the model?

        A server that does not list the model, and may have it all the same, is asked for one token.

        Raises:
            LLMError: requests would fail.
        """
        try:
            models = await self._models()
        except AttemptError as failed:
            message = f"{self._server}: {failed.reason}"
            raise LLMError(message, transient=failed.transient) from None
        fields = self._fields(ONE_TOKEN, effective(ONE_TOKEN.sampling, self._defaults))
        attempt = partial(self._attempt, fields)
        await self._check_listed(models, self._options.model, attempt, where=self._server)

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
        """Do the server's log-probabilities belong to the distribution that it samples from?"""
        fields = {**sampling_fields(sampling), **self._options.extra_body}
        return self._options.logprobs_mode == "processed" or samples_as_model(fields)

    def _warn_once(self, made: Completion) -> None:
        if self._options.return_token_ids and made.tokens is None and not self._warned:
            self._warned = True
            _log.warning(
                "%s: no token trace: the server gave no token ids with a log-probability each, or "
                "the request set a temperature or top_p that raw log-probabilities don't fit",
                self._server,
            )

    async def _attempt(self, fields: dict[str, Any]) -> Answer:
        status = None
        try:
            return await self._receive(fields)
        except openai.APIStatusError as error:
            self._reached, status = True, error.status_code
            failed = self._status_error(error, with_tools="tools" in fields)
        except openai.APIConnectionError as error:
            failed = self._connection_error(error)
        except self._transport_errors as error:
            failed = self._connection_error(error)
        except StreamedError as error:
            failed = stream_error(error.error, redact=self._redact)
        except BrokenStreamError as error:
            failed = AttemptError(self._redact(str(error)), transient=True)
        # Raised here, so that the SDK's error, which has the request's headers, is not its context.
        if status == 404 and failed.kind is LLMError:
            failed = await self._not_found(failed)
        raise failed

    async def _not_found(self, failed: AttemptError) -> AttemptError:
        """A 404, explained by the models that the server lists."""
        try:
            models = await self._models()
        except AttemptError:
            models = {}
        hint = missing_model(models, self._options.model)
        if models and hint is None:
            return failed
        if hint is None:
            hint = f"check llm.model and llm.base_url, {self._url}, which often ends in /v1"
        return AttemptError(f"{failed.reason}: {hint}", transient=False)

    async def _models(self) -> Mapping[str, str]:
        """Owners of the models that the server lists, by name; empty if it has no list.

        Raises:
            AttemptError: the server is not there, does not answer, or refuses the key.
        """
        timeout_s = min(_LIST_S, self._options.timeout_s)
        try:
            response = await self._client.models.with_raw_response.list(timeout=timeout_s)
        except openai.APIStatusError as error:
            self._reached = True
            if error.status_code not in (401, 403):
                return {}
            failed = self._status_error(error)
        except openai.APIConnectionError as error:
            failed = self._connection_error(error, timeout_s)
        else:
            self._reached = True
            return read_models(response.content)
        raise failed

    async def _receive(self, fields: dict[str, Any]) -> Answer:
        create = self._client.chat.completions.with_streaming_response.create
        async with create(**fields) as response:
            self._reached = True
            chunks = self._bounded(response.iter_bytes())
            if self._options.stream:
                answer = await assemble(chunks)
                await self._drain(chunks)
                return answer
            data = b"".join([chunk async for chunk in chunks])
        try:
            return read_answer(data)
        except ValueError as error:
            if sent := error_in(data):
                raise StreamedError(sent) from error
            raise BrokenStreamError(str(error)) from error

    async def _drain(self, chunks: AsyncIterator[bytes]) -> None:
        """Read what follows ``[DONE]``, so that the connection can be reused; nothing is lost if
        this fails.
        """
        with contextlib.suppress(TimeoutError, *self._transport_errors):
            async with asyncio.timeout(_DRAIN_S):
                async for _ in chunks:
                    pass

    async def _bounded(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        limit, received = MAX_RESPONSE_BYTES, 0
        async for chunk in chunks:
            received += len(chunk)
            if received > limit:
                raise AttemptError(f"the answer is longer than {limit} bytes", transient=False)
            yield chunk

    def _status_error(
        self, error: openai.APIStatusError, *, with_tools: bool = False
    ) -> AttemptError:
        variable = self._options.api_key_env
        key = (
            "a request without a key; put the key into an environment variable and name it in "
            "llm.api_key_env (in a config of ALE-lite: set llm.api_key)"
        )
        if variable is not None:
            key = f"the key in {variable}"
        return status_error(
            error.status_code,
            error.response.text,
            error.response.headers,
            redact=self._redact,
            key=key,
            clock=self._context.clock,
            with_tools=with_tools,
        )

    def _connection_error(self, error: Exception, timeout_s: float | None = None) -> AttemptError:
        if isinstance(error, openai.APITimeoutError):
            seconds = self._options.timeout_s if timeout_s is None else timeout_s
            return AttemptError(f"no answer within {seconds:g} s", transient=True)
        cause = error.__cause__ or error
        reason = self._redact(str(cause)) or type(cause).__name__
        if isinstance(cause, self._connect_errors) and not self._reached:
            # A server that has answered before may be restarting; this one never has.
            return AttemptError(self._unreachable(reason), transient=False)
        return AttemptError(f"the connection failed ({reason})", transient=True)

    def _unreachable(self, reason: str) -> str:
        return unreachable(self._url, reason, self._options.server, self._options.model)
