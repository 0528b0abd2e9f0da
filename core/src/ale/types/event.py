"""Events that observers receive, one record per hook."""

from collections.abc import Mapping
from typing import Any

from attrs import field

from ale.types._record import record
from ale.types.episode import Episode, Stage
from ale.types.training import StepReport


@record
class RunStarted:
    """The run is about to open its first sandbox."""

    run_id: str
    directory: str
    n_episodes: int | None
    """Episodes to run in all, those already on disk included; None if unknown."""
    n_done: int
    """Episodes already on disk (``--resume``)."""
    n_graded: int
    """Of these, graded ones."""
    n_succeeded: int
    """Of these, episodes whose reward is 1."""
    n_evaluated: int = 0
    """Evaluation episodes among `n_done`; not counted in the two above."""
    n_expert_guided: int = 0
    """Expert-guided graded episodes among `n_done`; not counted in them either."""
    concurrency: int
    config: Mapping[str, Any] = field(factory=dict)
    """The resolved config, without secrets."""
    at: float = 0.0
    """Seconds since the epoch."""


@record
class EpisodeStage:
    """An episode entered a stage."""

    episode_id: str
    task_id: str
    stage: Stage
    at: float = 0.0


@record
class EpisodeFinished:
    """An episode has been written to the run directory."""

    episode: Episode
    at: float = 0.0


@record
class StepFinished:
    """A trainer has finished a step."""

    report: StepReport
    at: float = 0.0


@record
class EvaluationFinished:
    """All evaluation episodes at one point of the training are on disk."""

    step: int
    """Training steps that the policy had learned from."""
    policy_version: int | None
    """None where the model is no `Policy`."""
    temperature: float | None = None
    """Of the sampling; None: what the model is configured with. Each temperature of an evaluation
    has an event of its own."""
    n_graded: int
    n_broken: int
    n_succeeded: int
    mean_reward: float | None
    k: int = 1
    """Graded samples of each task: the fewest that one has."""
    pass_at_k: float | None = None
    """Mean over tasks; only of several samples. See `ale.attempts.pass_at_k`."""
    majority: float | None = None
    """Share of tasks of whose samples more than half succeeded; only of several samples."""
    at: float = 0.0


@record
class RunFinished:
    """The run has ended. The last event."""

    run_id: str
    directory: str
    outcome: str
    """``completed``, ``drained``, ``cancelled`` or ``failed``."""
    n_graded: int
    n_broken: int
    n_succeeded: int
    mean_reward: float | None
    n_expert_guided: int = 0
    """Graded expert-guided episodes (demonstrations, other starts), which `n_graded`,
    `n_succeeded` and `mean_reward` exclude."""
    seconds: float
    at: float = 0.0
