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
    """The number of these that are graded."""
    n_succeeded: int
    """The number of graded episodes whose reward is 1."""
    n_evaluated: int = 0
    """Evaluation episodes among `n_done`; not counted in `n_graded` and `n_succeeded`."""
    n_expert_guided: int = 0
    """Expert-guided graded episodes among `n_done`; not counted in those two either."""
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
    """None if the model is not a `Policy`."""
    temperature: float | None = None
    """Sampling temperature; None: the one that the model is configured with. Each temperature of an
    evaluation has an event of its own."""
    n_graded: int
    n_broken: int
    n_succeeded: int
    mean_reward: float | None
    k: int = 1
    """The number of graded samples per task: the fewest that any task has."""
    pass_at_k: float | None = None
    """Mean over tasks; only with several samples. See `ale.attempts.pass_at_k`."""
    majority: float | None = None
    """Share of tasks with more than half of their samples successful; only with several samples."""
    at: float = 0.0


@record
class RunSteered:
    """A person or a program has asked something of the run: `ale steer`, `ale view`."""

    run_id: str
    action: str
    """As `ale steer` has it: ``pause``, ``resume``, ``concurrency``, ``cancel``, ``evaluate``,
    ``stop-after-step`` or ``stop``."""
    episode: str | None = None
    """The id of the one to be cancelled."""
    paused: bool
    """No further episode starts, now that it is done."""
    concurrency: int
    """Most episodes at once."""
    auto: bool = False
    """The run changes this number by itself."""
    at: float = 0.0


@record
class RunFinished:
    """The run has ended. The last event."""

    run_id: str
    directory: str
    outcome: str
    """``completed``, ``drained``, ``halted`` by a rule, ``cancelled`` or ``failed``."""
    n_graded: int
    n_broken: int
    n_succeeded: int
    mean_reward: float | None
    n_expert_guided: int = 0
    """Graded expert-guided episodes (demonstrations, other starts), which `n_graded`,
    `n_succeeded` and `mean_reward` exclude."""
    seconds: float
    at: float = 0.0
