"""Starts: the states from which rollouts are sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ale.protocols.sandbox import Sandbox
    from ale.types import CompletionRequest, Episode, FinishReason, Message, Task


class Expert(Protocol):
    """Gives the answers of a demonstration in place of the model."""

    def answer(self, request: CompletionRequest) -> Message | None:
        """The answer to force on the model; None after the expert's last turn.

        The same turn may be requested again, as after an agent has shortened its context.

        Raises:
            ReplayError: the observations differ from those that the expert saw. The episode is
                broken.
        """
        ...


@runtime_checkable
class RecordedExpert(Expert, Protocol):
    """An expert whose answers were recorded. An agent that tells an answer
    that was cut off at the token limit from a whole one is shown it as it was."""

    def finish_reason(self, request: CompletionRequest) -> FinishReason:
        """Why the answer that `Expert.answer` gives to this request ended."""
        ...


@frozen(kw_only=True)
class Start:
    """The state from which some rollouts of a task are sampled."""

    task_id: str
    rollouts: int
    """Number of rollouts; they form a group."""
    name: str = ""
    """Empty for the task's initial state; else one word that is part of the episodes' ids."""
    expert: Callable[[], Expert] | None = None
    """Makes the expert whose turns are forced first; called for each rollout."""
    next_action: Callable[[], Expert] | None = None
    """Makes an expert that has one turn more than `expert`: its action in the state where sampling
    starts. The model tokenises this action (`Policy.force`) before it samples its own answer; the
    agent does not see it. A trainer finds it as a target of imitation in `Episode.metadata` under
    ``expert_next``: ``turn`` (0-based), ``output_ids``, ``logprobs`` and ``policy_versions``, to
    follow that turn's prompt; or ``left_out``, the reason why there is none."""
    demonstration: bool = False
    """All turns come from the expert: nothing is sampled."""
    expert_turns: int | None = None
    """K*: the number of turns of the expert's whole episode, of which the first ones are replayed.
    A trainer finds it in `Episode.metadata`."""


@runtime_checkable
class StartScheme(Protocol):
    """Chooses the starts of rollouts. Deterministic: a resumed run must get the same plan.

    Source: chunk-level initialised resampling (arXiv:2512.24873, 3.2.4.4).
    """

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """The starts of one training step.

        Args:
            step: 0-based.
            tasks: the tasks drawn for this step; a start's task is one of them or, for a
                demonstration, may be one of an earlier step.
            rollouts: number of episodes per task, from the config.
        """
        ...

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """Update from the graded episodes of a complete step.

        Called for each step in order; a resumed run first calls it for the steps on disk.
        """
        ...


class Restoring(Protocol):
    """How one attempt at a rollout reaches the state after its expert's turns.

    The agent always goes through the expert's turns. Either their commands run in the sandbox, or
    the sandbox is already in the state to which they lead.
    """

    @property
    def facts(self) -> Mapping[str, str]:
        """For the episode's metadata: ``restored``, which is ``fork`` or ``replay``, and why."""
        ...

    def open(
        self, fresh: Callable[[], AbstractAsyncContextManager[Sandbox]]
    ) -> AbstractAsyncContextManager[Sandbox]:
        """The sandbox for the agent and the criteria.

        Args:
            fresh: opens a sandbox in the task's initial state, set up.

        Raises (on entry):
            SandboxError, SetupError: as for `fresh`.
        """
        ...

    async def expert_finished(self) -> None:
        """Called after the expert's last turn, before the model samples its first answer.

        Raises:
            ReplayError: the sandbox is not in the state that the agent has reached.
        """
        ...


@runtime_checkable
class RestoringScheme(StartScheme, Protocol):
    """A start scheme that can reach its starts without running all commands again."""

    def restoring(self, start: Start) -> AbstractAsyncContextManager[Restoring]:
        """One attempt at a rollout of `start`, which has an expert and is not a demonstration.

        Entering may wait for another rollout of the same start, at most until that one ends.
        """
        ...

    async def aclose(self) -> None:
        """Release every saved state. Called once, after the last episode."""
        ...
