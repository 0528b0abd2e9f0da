"""Language models, and policies: models that can be trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from ale.types import (
        Completion,
        CompletionRequest,
        HandOver,
        LLMCapabilities,
        Message,
        PolicySnapshot,
        Sampling,
    )


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
    """A language model, or a scorer with one, that can be checked before a run starts."""

    async def check(self) -> None:
        """Ask the server whether it is there, takes the key and has the model; spends no tokens.

        A server that can't say is not an error.

        Raises:
            LLMError: requests would fail; the message says why and what to do.
        """
        ...


@runtime_checkable
class CountsRefusals(Protocol):
    """A language model whose server refuses requests that are too many for it or for a quota.

    ``run.concurrency: auto`` then runs fewer episodes at once.
    """

    @property
    def refused(self) -> int:
        """Requests that the server has refused for now since the model was built, whether or not a
        later attempt was answered."""
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
    """A language model whose weights change, and which is exact to the token.

    A trainer of this framework needs a `TrainablePolicy`.
    """

    @property
    def policy_version(self) -> int:
        """Version of the weights that the next token is sampled from."""
        ...

    async def load_policy(self, snapshot: PolicySnapshot) -> None:
        """Sample from these weights: every token from now on carries their version.

        `PolicySnapshot.hand_over` says how they are given.

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
class PolicyModel(Protocol):
    """The model of a policy, in this process: what a trainer trains or copies."""

    @property
    def model(self) -> Any:
        """A causal language model of transformers.

        With adapters, a trainer adds them to this object.
        """
        ...

    @property
    def tokenizer(self) -> Any:
        """Its fast tokenizer of transformers, for exports and for trainers that use TRL."""
        ...

    @property
    def fingerprint(self) -> str:
        """Identifies architecture and vocabulary, not weights; checkpoints of another are refused.

        Equal each time that the same policy is built.
        """
        ...

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while the model runs, or its weights are read or changed.

        A trainer that trains the model in place holds it for a whole step.
        """
        ...


@runtime_checkable
class TrainablePolicy(Policy, Protocol):
    """A policy that trainers of this process train.

    `ale.testing.policy.TrainablePolicyContract` trains it.
    """

    @property
    def policy(self) -> PolicyModel:
        """The model that is trained."""
        ...

    @property
    def sampling(self) -> Sampling:
        """The defaults of every request. A trainer scores at this temperature."""
        ...

    @property
    def same_engine(self) -> bool | None:
        """True if sampled log-probabilities are those of `policy`, up to rounding of its own type.

        If not, a trainer needs a correction. None if it is not known.
        """
        ...

    @property
    def training_device(self) -> str:
        """Device on which trainers compute, as torch names it.

        It differs from that of the weights if another process samples: these then stay in the
        processor's memory, and if they are sharded, no GPU needs to hold them whole.
        """
        ...

    @property
    def hand_overs(self) -> frozenset[HandOver]:
        """The ways in which `load_policy` takes weights. A trainer with another one is refused."""
        ...

    def attached(self) -> None:
        """A trainer has been attached, and will change the weights. Nothing was sampled so far."""
        ...


@runtime_checkable
class ServedPolicy(Policy, Protocol):
    """A policy whose weights are on servers that other processes can ask."""

    async def client_options(self) -> Mapping[str, Any]:
        """Options with which the same component asks the same servers from another process.

        They replace the options in the config, and contain no secret. Called before anything is
        sampled, if episodes run in other processes. The run's own servers have to be started now,
        as this process may never ask them.

        Raises:
            LLMError: the servers can't be started.
        """
        ...
