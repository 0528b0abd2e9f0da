"""Language models, and policies: models that can be trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ale.types import Completion, CompletionRequest, LLMCapabilities, Message, PolicySnapshot


@runtime_checkable
class LLM(Protocol):
    """A language model."""

    @property
    def capabilities(self) -> LLMCapabilities: ...

    async def complete(self, request: CompletionRequest) -> Completion:
        """One answer. Called by many episodes at once.

        Raises:
            ContextLengthError: the conversation is too long for the model.
            LLMError: there was no answer, after the retries that the options allow.
        """
        ...

    async def aclose(self) -> None:
        """Close connections. May be called again."""
        ...


@runtime_checkable
class Checkable(Protocol):
    """A language model with a check, before a run starts, that it can be asked."""

    async def check(self) -> None:
        """Ask the server whether it is there, takes the key and has the model; spends no tokens.

        A server that can't say is not an error.

        Raises:
            LLMError: requests would fail; the message says why and what to do.
        """
        ...


@runtime_checkable
class KnowsTokenizer(Protocol):
    """A language model that gives token ids and knows the identity of its tokenizer."""

    @property
    def tokenizer_id(self) -> str:
        """Equal for two models exactly if each id is the same token of both.

        Episodes have it in `Episode.metadata`, under ``tokenizer``: their ids mean nothing to
        another.
        """
        ...


@runtime_checkable
class Policy(LLM, Protocol):
    """A language model that can be trained: it is exact to the token, and its weights change."""

    @property
    def policy_version(self) -> int:
        """Version of the weights that the next token is sampled from."""
        ...

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Sample from these weights: every token from now on carries their version.

        Answers being sampled continue with the new weights; `TokenTrace.policy_versions` says
        which token came from which.

        Raises:
            AleError: the weights don't fit this model, or it can't load them.
        """
        ...

    async def force(self, request: CompletionRequest, answer: Message) -> Completion:
        """`answer` as a completion of this model (teacher forcing): nothing is sampled.

        `forced` is set, and the log-probabilities are those of the current weights. Used for
        demonstrations, and for replaying an expert's first turns. The same request may follow
        again, also to `complete`: its prompt must then be the same.

        Raises:
            ContextLengthError, LLMError: as for `complete`.
        """
        ...


@runtime_checkable
class ServedPolicy(Policy, Protocol):
    """A policy whose weights are on servers that other processes can ask."""

    async def client_options(self) -> Mapping[str, Any]:
        """Options with which the same component asks the same servers from another process.

        They replace the options in the config, and contain no secret. Called once the run has
        started. The run's own servers have to be started now, as this process may never ask them.

        Raises:
            LLMError: the servers can't be started.
        """
        ...
