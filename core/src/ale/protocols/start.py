"""Where rollouts begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ale.protocols.sandbox import Sandbox
    from ale.types import CompletionRequest, Episode, Message, Task


class Expert(Protocol):
    """Knows how a task is done, and says it in the model's place."""

    def answer(self, request: CompletionRequest) -> Message | None:
        """What the model is made to say here; None from where on it is on its own.

        A turn may be asked again, as after an agent has shortened its context.

        Raises:
            ReplayError: what has been observed is not what the expert saw. The episode is broken.
        """
        ...


@frozen(kw_only=True)
class Start:
    """Where some rollouts of a task begin."""

    task_id: str
    rollouts: int
    """How many, side by side: a group."""
    name: str = ""
    """Empty for the task's own beginning; else one word, which stands in the episodes' ids."""
    expert: Callable[[], Expert] | None = None
    """Makes the one that speaks first, anew for each rollout."""
    next_action: Callable[[], Expert] | None = None
    """Makes one that says a turn more than `expert`, from a task's own beginning the first: what
    the expert would say where the rollout begins. The model writes it down (`Policy.force`) before
    it answers itself, and the agent never hears of it. A trainer that imitates finds it in
    `Episode.metadata`: ``expert_next``, with its ``turn`` (0-based), ``output_ids``, ``logprobs``
    and ``policy_versions``, after that turn's own prompt; or ``left_out``, and why."""
    demonstration: bool = False
    """The expert speaks to the end: nothing is sampled."""
    expert_turns: int | None = None
    """K*: turns of the expert's whole episode, of which the first are replayed. A trainer finds
    it in `Episode.metadata`."""


@runtime_checkable
class StartScheme(Protocol):
    """Chooses where rollouts begin. Deterministic: a resumed run asks again and must hear the same.

    Source: chunk-level initialised resampling (arXiv:2512.24873, 3.2.4.4).
    """

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """The starts of one training step.

        Args:
            step: 0-based.
            tasks: those drawn for this step; a start's task is one of them.
            rollouts: episodes that the config wants of each.
        """
        ...

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """Look at the graded episodes of a step, after all of them are there.

        Called for each step in order; after a resume for those on disk first.
        """
        ...


class Restoring(Protocol):
    """How one attempt at a rollout comes to where its expert falls silent.

    The agent always walks there itself, and the expert speaks: what may differ is whether the
    sandbox runs the commands on the way or is already where they lead.
    """

    @property
    def facts(self) -> Mapping[str, str]:
        """For the episode's metadata: ``restored``, ``fork`` or ``replay``, and why."""
        ...

    def opened(
        self, fresh: Callable[[], AbstractAsyncContextManager[Sandbox]]
    ) -> AbstractAsyncContextManager[Sandbox]:
        """The sandbox for the agent and the criteria.

        Args:
            fresh: opens one at the task's own beginning, set up.

        Raises (on entry):
            SandboxError, SetupError: as `fresh`.
        """
        ...

    async def arrived(self) -> None:
        """Told when the expert has fallen silent, before the model is asked for the first time.

        Raises:
            ReplayError: this sandbox is not where the agent is.
        """
        ...


@runtime_checkable
class RestoringScheme(StartScheme, Protocol):
    """A start scheme that knows another way to its starts than to run all commands again."""

    def restoring(self, start: Start) -> AbstractAsyncContextManager[Restoring]:
        """One attempt at a rollout of `start`, which has an expert and is no demonstration.

        Entering may wait for another rollout of the same start, no longer than that one runs.
        """
        ...

    async def aclose(self) -> None:
        """Let go of every state that is kept. Called once, after the last episode."""
        ...
