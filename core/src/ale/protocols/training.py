"""Chunkers, credit schemes and trainers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from ale.protocols.llm import LLM
    from ale.types import (
        Batch,
        Chunk,
        Credit,
        Episode,
        Group,
        PolicySnapshot,
        StepReport,
        StepScore,
        Task,
        Trajectory,
    )


@runtime_checkable
class Chunker(Protocol):
    """Splits a trajectory into the steps of the decision process. Pure."""

    def split(self, trajectory: Trajectory) -> Sequence[Chunk]:
        """Chunks in order, a partition of the trajectory (see `Span`).

        Raises:
            ChunkError: the trajectory lacks what this chunker needs.
        """
        ...


@runtime_checkable
class CreditScheme(Protocol):
    """Assigns credit to every chunk of a group. Pure."""

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout, in the order of the group. Finite numbers only."""
        ...


@frozen(kw_only=True)
class ScoringContext:
    """The episode whose chunks are scored."""

    task: Task
    episode: Episode
    """Graded; it has no reward yet if a criterion has it scored."""
    earlier: Mapping[str, Sequence[StepScore]]
    """The scores of the scorers before this one, by scorer; each has one for every chunk."""


@runtime_checkable
class StepScorer(Protocol):
    """Scores the chunks of an episode after it was graded."""

    async def score(self, context: ScoringContext, chunks: Sequence[Chunk]) -> Sequence[StepScore]:
        """One score for each chunk, in order.

        A chunk that can't be scored (a server is down, an answer can't be read) gets an abstention
        with the reason, never a value that nobody measured. An exception ends the run.
        """
        ...

    async def aclose(self) -> None:
        """Close connections. May be called again."""
        ...


@runtime_checkable
class ReadsScores(Protocol):
    """A scorer that reads the scores of others in its context, or a credit scheme that reads those
    of its group. A run is refused in which one of them is missing, or stands after its reader."""

    @property
    def reads(self) -> Sequence[str]:
        """Names of scorers."""
        ...


@runtime_checkable
class ComparesRollouts(Protocol):
    """A credit scheme that compares the rollouts of a group with each other,
    so that the only one of its group has no credit. With a trainer, a run whose groups are such is
    reported before its first episode."""

    compares_rollouts: Literal[True]


@runtime_checkable
class CriticCredit(Protocol):
    """A credit scheme whose credits have `Credit.gae`, for a critic."""

    needs_critic: Literal[True]


@runtime_checkable
class CriticTrainer(Protocol):
    """A trainer with a critic, which completes credits that have
    `Credit.gae`. A run has both such a scheme and such a trainer, or neither."""

    has_critic: bool
    """Whether it has a critic, which may depend on its options."""


@runtime_checkable
class IgnoresDemonstrations(Protocol):
    """A trainer that learns from sampled answers alone. A run whose starts
    begin with demonstrations (`Start.demonstration`) is refused with it."""

    ignores_demonstrations: Literal[True]


@runtime_checkable
class NamesMetrics(Protocol):
    """A trainer that names the metrics of its reports, so that a rule over another
    one (`run.stop_if`, `run.alert_if`) is refused at the start."""

    @property
    def metric_names(self) -> Collection[str]:
        """All that a step may have; a step may lack some."""
        ...


@frozen(kw_only=True)
class ObjectivePart:
    """A part of an objective, such as a clip or a mask, in one run."""

    name: str
    idle: str = ""
    """Why it can change no gradient with the run's settings; empty if it can."""
    metrics: Mapping[str, float]
    """Metrics of a step, each with the value that it has while the part changes nothing: 0 of a
    share, 1 of a ratio."""


@frozen(kw_only=True)
class ObjectiveFacts:
    """Facts about an objective with the settings of one run; the manifest stores them."""

    name: str
    parts: tuple[ObjectivePart, ...] = ()
    reduces_to: str = ""
    """The simpler loss that has the same gradient with these settings, in words; empty if none is
    known."""


@runtime_checkable
class ExplainsObjective(Protocol):
    """A trainer that can tell which parts of its objective can't act in a
    run. `ale check` and the start of a run say so, and `ale show` and the report which did not."""

    def explain_objective(self, credit: CreditScheme, rollouts: int) -> ObjectiveFacts | None:
        """Facts about the objective; None if there is nothing to tell. Called after `attach`.

        Args:
            credit: the run's scheme, to see what weights it can give.
            rollouts: the number of a group.
        """
        ...


@runtime_checkable
class BackgroundSaver(Protocol):
    """A trainer that can write a checkpoint while the run continues."""

    def start_saving(self, directory: Path) -> Callable[[], None] | None:
        """Begin to write what `Trainer.save` would write now.

        Args:
            directory: an empty folder, which is not a checkpoint until everything is written.

        Returns:
            A function that waits until everything is written; None if it already is. It is called
            once, in any thread, before `start_saving` is called again; `Trainer.step` and
            `Trainer.snapshot` may be called before that.

        Raises:
            StoreError: it can't be written; the returned function raises this too.
        """
        ...


@runtime_checkable
class Trainer(Protocol):
    """Learns from credited episodes."""

    def attach(self, llm: LLM | None) -> None:
        """Set the model that the episodes come from. Called once, before anything else.

        A trainer in the model's process may use the model object itself; the run passes every
        `snapshot` to `Policy.load_policy` after a step.

        Raises:
            InputError: this model can't be trained here, for example because it gives no token ids.
        """
        ...

    async def step(self, batch: Batch) -> StepReport:
        """Train on one batch."""
        ...

    def snapshot(self) -> PolicySnapshot:
        """The current policy; the snapshot is never changed afterwards."""
        ...

    def save(self, directory: Path) -> None:
        """Write everything that `load` needs to continue exactly.

        Args:
            directory: an empty folder. The run adds `step.json`, the report of the step.
        """
        ...

    def load(self, directory: Path) -> None:
        """Continue from what `save` wrote.

        Raises:
            StoreError: it is not a checkpoint of this trainer.
        """
        ...
