"""From trajectories to a better policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ale.protocols.llm import LLM
    from ale.types import Batch, Chunk, Credit, Group, PolicySnapshot, StepReport, Trajectory


@runtime_checkable
class Chunker(Protocol):
    """Cuts a trajectory into the steps of the decision process. Pure."""

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """Chunks in order, a partition of the trajectory (see `Span`).

        Raises:
            ChunkError: the trajectory lacks what this cut needs.
        """
        ...


@runtime_checkable
class CreditScheme(Protocol):
    """Gives every chunk of a group its credit. Pure."""

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout, in the order of the group. Finite numbers only."""
        ...


@runtime_checkable
class Trainer(Protocol):
    """Learns from credited episodes."""

    def attach(self, llm: LLM | None) -> None:
        """Learn which model the episodes come from. Called once, before all else.

        A trainer in the model's process may take the model itself; the run hands every `snapshot`
        to `Policy.load_policy` after a step.

        Raises:
            InputError: this model can't be trained here: it gives no token ids, say.
        """
        ...

    async def step(self, batch: Batch) -> StepReport:
        """Learn from one batch."""
        ...

    def snapshot(self) -> PolicySnapshot:
        """The policy as it stands, never changed afterwards."""
        ...

    def save(self, directory: Path) -> None:
        """Write all that `load` needs to go on as if never stopped.

        Args:
            directory: an empty folder. `step.json` in it is the run's: the report of the step.
        """
        ...

    def load(self, directory: Path) -> None:
        """Go on from what `save` wrote.

        Raises:
            StoreError: it is not a checkpoint of this trainer.
        """
        ...
