"""The model component: samples from a snapshot at the service."""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

import tinker
from attrs import define, field
from tinker import types

from ale.errors import InputError, LLMError, NotUsableError
from ale.plugin import BuildContext
from ale.types import LLMCapabilities, PolicySnapshot, Sampling
from ale_servers.records import Sampled, SampleRequest
from ale_tinker.options import ModelOptions
from ale_tinker.service import Service, naming_errors
from ale_training.chat import ChatTemplate
from ale_training.chat.model import TokenLLM
from ale_training.chat.stops import truncate_at_stop
from ale_training.chat.tokenizer import load_tokenizer, template_source, vocabulary_id
from ale_training.hub import only_local, unloadable

SCHEME = "tinker://"
"""Begins the names of snapshots at the service."""


@define(eq=False)
class Served:
    """A `Tokenised` model on the service."""

    name: str
    template: ChatTemplate
    tokenizer_id: str
    context: int
    version: int = 0


@define(eq=False, repr=False, slots=False)
class TinkerLLM(TokenLLM):
    """Samples from the base model, or from the snapshot that a trainer has handed over last."""

    policy: Served
    service: Service = field(kw_only=True)
    """The session; a trainer uses it too."""
    _timeout_s: float = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._path: str | None = None
        self._sampler: tinker.SamplingClient | None = None
        self._connecting = asyncio.Lock()

    @property
    def capabilities(self) -> LLMCapabilities:
        """Not deterministic: the service gives the same answer to the same seed at its best."""
        tools = self.policy.template.no_tools is None
        return LLMCapabilities(tools=tools, token_ids=True, logprobs=True)

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Sample from a snapshot at the service, whose name is its path; without one, from the
        base model.

        Raises:
            InputError: the snapshot has tensors, or a folder.
            AleError: the service does not have it.
        """
        path = snapshot.path
        if snapshot.weights is not None or not (path or SCHEME).startswith(SCHEME):
            message = f"a model on tinker takes no weights {snapshot.hand_over}"
            raise InputError.of(message, path="trainer.type", expected="trainer: {type: tinker}")
        async with self._connecting:
            if path != self._path or self._sampler is None:
                with naming_errors(f"sampling from {path or self.policy.name}"):
                    sampler = await self.service.sampler(self.policy.name, path)
                self._path, self._sampler = path, sampler
            self.policy.version = snapshot.version

    async def _connected(self) -> tuple[tinker.SamplingClient, int]:
        """The client and the version of its weights."""
        async with self._connecting:
            if self._sampler is None:
                self._sampler = await self.service.sampler(self.policy.name, self._path)
            return self._sampler, self.policy.version

    async def _sample(self, asked: SampleRequest, session: str) -> Sampled:
        with naming_errors("no answer", LLMError):
            async with asyncio.timeout(self._timeout_s):
                client, version = await self._connected()
                if asked.forced_ids:
                    return await self._score(client, version, asked)
                return await self._drawn(client, version, asked)

    async def _score(
        self, client: tinker.SamplingClient, version: int, asked: SampleRequest
    ) -> Sampled:
        ids = asked.forced_ids
        whole = types.ModelInput.from_ints([*asked.prompt_ids, *ids])
        found = await client.compute_logprobs(whole, prompt_logprobs_last_n=len(ids))
        logprobs = [each for each in found[-len(ids) :] if each is not None]
        return _sampled(ids, logprobs, version, "forced")

    async def _drawn(
        self, client: tinker.SamplingClient, version: int, asked: SampleRequest
    ) -> Sampled:
        response = await client.sample(
            prompt=types.ModelInput.from_ints([*asked.prompt_ids]),
            num_samples=1,
            sampling_params=types.SamplingParams(
                max_tokens=asked.max_tokens,
                seed=_number(asked.seed),
                # Ids only: the SDK takes ids or texts. An answer is cut at a text below.
                stop=list(asked.stop_ids),
                temperature=asked.temperature,
                top_p=asked.top_p,
            ),
        )
        (sequence,) = response.sequences
        ids, at = truncate_at_stop(tuple(sequence.tokens), asked.stop, self._text)
        reason = sequence.stop_reason if at is None else "stop"
        return _sampled(ids, (sequence.logprobs or [])[: len(ids)], version, reason)

    async def aclose(self) -> None:
        """End the session. Idempotent."""
        self._sampler = None
        with naming_errors("the session could not be ended"):
            await self.service.aclose()


def _sampled(ids: Sequence[int], logprobs: Sequence[float], version: int, reason: Any) -> Sampled:
    if not ids or len(logprobs) != len(ids):
        n = f"{len(ids)} tokens with {len(logprobs)} log-probabilities"
        raise LLMError(f"tinker: the service gave an answer of {n}")
    return Sampled(
        ids=tuple(ids),
        logprobs=tuple(min(0.0, each) for each in logprobs),  # rounding
        versions=(version,) * len(ids),
        reason=reason,
        digests={},
    )


def _number(seed: str) -> int:
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4]) >> 1


def build(options: ModelOptions, context: BuildContext) -> TinkerLLM:
    """Load the tokenizer; the service is not asked.

    Raises:
        InputError: the tokenizer can't be loaded, or its template can't be used.
        NotUsableError: there is no key.
    """
    key = context.environ.get(options.api_key_env)
    if not key:
        raise NotUsableError(f"tinker: {options.api_key_env} is not set")
    tokenizer = _tokenizer(options)
    source = template_source(options.chat_template)
    if source is not None:
        tokenizer.chat_template = source
    ends = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
    template = ChatTemplate(tokenizer, calls=options.calls, turns=options.turns, ends=ends)
    return TinkerLLM(
        Served(
            name=options.model,
            template=template,
            tokenizer_id=vocabulary_id(tokenizer),
            context=options.context,
        ),
        service=Service(api_key=key, base_url=options.base_url),
        timeout_s=options.timeout_s,
        context=options.context,
        defaults=Sampling(
            temperature=options.temperature,
            top_p=options.top_p,
            max_tokens=options.max_tokens,
        ),
    )


def _tokenizer(options: ModelOptions) -> Any:
    name = str(options.tokenizer or options.model)
    path = "llm.tokenizer" if options.tokenizer else "llm.model"
    try:
        return load_tokenizer(name, only_local(name, path=path))
    except (OSError, ValueError) as error:
        hint = "llm.tokenizer: the name or folder of the model's tokenizer"
        raise unloadable(name, str(error).partition("\n")[0], path=path, hint=hint) from error
