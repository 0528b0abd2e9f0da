"""A model through litellm.

litellm's own retries are off, so that one rule with a deadline and a seeded jitter applies to every
provider. There are no token traces: which of a server's token ids litellm passes on differs by
provider and version; `ale-llm-openai` asks such servers directly.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import openai

from ale.errors import ContextLengthError, LLMError
from ale.plugin import BuildContext, Secret
from ale.types import Completion, CompletionRequest, LLMCapabilities
from ale_llm_litellm.options import LiteLLMOptions
from ale_llm_litellm.quiet import load
from ale_openai_wire import (
    ONE_TOKEN,
    TOO_LONG,
    Answer,
    AttemptError,
    ChatClient,
    completion,
    effective,
    from_mapping,
    messages,
    missing_model,
    read_models,
    sampling_fields,
    status_error,
    tools,
    turn_seed,
    unreachable,
)

_LIST_S = 10.0
"""Seconds to wait for the list of models, which costs a server nothing."""
_NO_CONNECTION = re.compile(r"Connection error|Cannot connect to host|Connect call failed", re.I)
_NO_KEY = re.compile(r"Missing credentials|api_key client option must be set", re.I)
"""What the SDK says before anything is sent; litellm turns it into a status 500."""
_PLACEHOLDER = "none"
_SERVERS = {
    "hosted_vllm": "vllm",
    "lm_studio": "lmstudio",
    "ollama": "ollama",
    "ollama_chat": "ollama",
}
"""Servers by the names that litellm has for them."""


class LiteLLM(ChatClient):
    """A model of any provider that litellm knows."""

    def __init__(
        self, options: LiteLLMOptions, *, key: Secret | None, context: BuildContext
    ) -> None:
        super().__init__(options, key=key, context=context, where=options.model)
        self._options = options
        self._litellm = load()
        self._model = options.provider_and_model
        self._name = self._model.partition("/")[2]
        self._key = self._placeholder() if key is None else key.value
        self._seeded = options.send_seed and self._takes_seed()

    @property
    def capabilities(self) -> LLMCapabilities:
        """Tools if the options say so; never token ids."""
        return LLMCapabilities(tools=self._options.tools)

    async def complete(self, request: CompletionRequest) -> Completion:
        """One answer, after as many attempts as the options allow.

        Raises:
            ContextLengthError: the conversation is too long for the model.
            ToolsUnsupportedError: the server takes no tools for this model.
            LLMError: no answer; the message says how each attempt failed.
        """
        fields = self._fields(request)
        answer = await self._answer(request, lambda: self._attempt(fields))
        return completion(answer, turn=request.turn, model=self._options.model)

    async def check(self) -> None:
        """With a `base_url`: does a server answer there and have the model? Else: is there a key?

        A server that does not list the model, and may have it all the same, is asked for one token.

        Raises:
            LLMError: requests would fail.
        """
        if self._options.base_url is None:
            self._check_key()
            return
        try:
            models = await self._models(self._options.base_url)
        except AttemptError as failed:
            raise LLMError(f"{self._where}: {failed.reason}", transient=failed.transient) from None
        attempt = partial(self._attempt, self._fields(ONE_TOKEN))
        await self._check_listed(models, self._name, attempt, where=self._options.model)

    async def aclose(self) -> None:
        """Refuse further requests. litellm's connections belong to the whole process, not to a
        model; they end with it.
        """
        self._closed = True

    def _placeholder(self) -> str | None:
        """A key for a server that checks none: litellm's SDKs send no request without a key."""
        if self._options.base_url is None or not self._missing_keys():
            return None
        return _PLACEHOLDER

    def _missing_keys(self) -> list[str]:
        found: list[str] = self._litellm.validate_environment(self._model)["missing_keys"]
        return found

    def _check_key(self) -> None:
        missing = [] if self._key is not None else self._missing_keys()
        if missing:
            raise LLMError(
                f"{self._options.model}: no key; set {' and '.join(missing)}, or name the variable "
                "with the key in llm.api_key_env"
            )

    async def _models(self, base_url: str) -> Mapping[str, str]:
        """Owners of the models that the server lists, by name; empty if it has no list.

        Raises:
            AttemptError: the server is not there, does not answer, or refuses the key.
        """
        timeout_s = min(_LIST_S, self._options.timeout_s)
        client = openai.AsyncOpenAI(
            base_url=base_url, api_key=self._key or _PLACEHOLDER, max_retries=0, timeout=timeout_s
        )
        try:
            async with client:
                response = await client.models.with_raw_response.list()
        except openai.APIStatusError as error:
            if error.status_code not in (401, 403):
                return {}
            failed = self._failed(error)
        except openai.APITimeoutError:
            failed = AttemptError(f"no answer within {timeout_s:g} s", transient=True)
        except openai.APIConnectionError as error:
            reason = self._redact(str(error.__cause__ or error))
            failed = AttemptError(self._unreachable(base_url, reason), transient=False)
        else:
            return read_models(response.content)
        raise failed

    def _unreachable(self, base_url: str, reason: str) -> str:
        provider = self._model.partition("/")[0]
        return unreachable(base_url, reason, _SERVERS.get(provider), self._name)

    def _takes_seed(self) -> bool:
        return "seed" in (self._litellm.get_supported_openai_params(self._model) or ())

    def _fields(self, request: CompletionRequest) -> dict[str, Any]:
        options = self._options
        fields: dict[str, Any] = {
            "model": self._model,
            "messages": messages(request.messages, reasoning_field=options.reasoning_field),
            "api_base": options.base_url,
            "api_key": self._key,
            "timeout": options.timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            **sampling_fields(effective(request.sampling, self._defaults)),
        }
        if request.tools:
            fields["tools"] = tools(request.tools)
            # Otherwise litellm checks whether a tool belongs to an MCP gateway. For this it imports
            # its proxy, which needs packages that it does not depend on (seen with 1.106).
            fields["_skip_mcp_handler"] = True
        if self._seeded:
            fields["seed"] = turn_seed(request.conversation, request.turn)
        return {**fields, **options.extra}

    async def _attempt(self, fields: dict[str, Any]) -> Answer:
        try:
            response = await self._litellm.acompletion(**fields)
        except openai.OpenAIError as error:  # base of all provider errors that litellm raises
            status = getattr(error, "status_code", None)
            cut = _NO_CONNECTION.search(str(error)) is not None
            failed = self._failed(error, with_tools="tools" in fields)
        else:
            self._reached = True
            return _answer(response.model_dump())
        # Raised here, so that litellm's error, which contains the request, is not its context.
        if (cut and not self._reached) or (status == 404 and failed.kind is LLMError):
            failed = await self._explained(failed)
        raise failed

    async def _explained(self, failed: AttemptError) -> AttemptError:
        """A 404 or a lost connection, explained by what the server lists as its models."""
        if self._options.base_url is None:
            return failed
        try:
            models = await self._models(self._options.base_url)
        except AttemptError as unusable:
            return unusable
        self._reached = True
        problem = missing_model(models, self._name)
        if failed.transient or problem is None:
            return failed
        return AttemptError(problem, transient=False)

    def _failed(self, error: openai.OpenAIError, *, with_tools: bool = False) -> AttemptError:
        text = str(error)
        if isinstance(error, self._litellm.ContextWindowExceededError):
            reason = f"{self._redact(text)}: {TOO_LONG}"
            return AttemptError(reason, transient=False, kind=ContextLengthError)
        if _NO_KEY.search(text):
            reason = "litellm found no key; name the variable with the key in llm.api_key_env"
            return AttemptError(reason, transient=False)
        status = getattr(error, "status_code", None)
        if not isinstance(status, int):
            return AttemptError(self._redact(text), transient=False)
        variable = self._options.api_key_env
        return status_error(
            status,
            text,
            getattr(error, "litellm_response_headers", None) or {},
            redact=self._redact,
            key=self._key_name() if variable is None else f"the key in {variable}",
            clock=self._context.clock,
            with_tools=with_tools,
        )

    def _key_name(self) -> str:
        names = " and ".join(self._missing_keys())
        return f"the key, if any; set {names or 'it'}, or name its variable in llm.api_key_env"


def _answer(body: Mapping[str, Any]) -> Answer:
    """litellm's object as an answer.

    litellm turns finish reasons that it does not know into ``stop``; the provider's own reason,
    where litellm passes it on, is used instead.
    """
    try:
        answer = from_mapping(body)
    except ValueError as error:
        raise AttemptError(f"the answer can't be read ({error})", transient=True) from None
    own = (body["choices"][0].get("provider_specific_fields") or {}).get("native_finish_reason")
    if own is not None and answer.choices[0].finish_reason == "stop":
        answer.choices[0].finish_reason = own
    return answer
