"""An episode: one attempt at one task, from sandbox to reward."""

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field

from ale.types._record import record
from ale.types.trajectory import Trajectory

Split = Literal["train", "evaluation"]
Stage = Literal["queued", "sandbox", "setup", "agent", "grading", "teardown"]


@record
class Score:
    """What one criterion found."""

    criterion: str
    passed: bool
    value: float
    """In [0, 1], or finite where `unbounded`; 1 exactly when the criterion holds."""
    weight: float = 1.0
    """0 for a step that does not count."""
    detail: str = ""
    """Why, in words a person can act on, with an excerpt of the evidence."""
    ends_task: bool = False
    """Of a step: those after it are not begun."""
    kept: str | None = None
    """Folder in the run's directory with what the criterion has kept."""
    unbounded: bool = False
    """The task's own tests give the value, on a scale of their own."""


@record
class Failure:
    """Why an episode broke. Infrastructure, never the agent's fault."""

    stage: Stage
    kind: str
    """Name of the error's class."""
    message: str
    traceback: str = ""


@record
class Limits:
    """What an agent may use up. None is no limit."""

    max_steps: int | None = None
    """Tool calls."""
    max_turns: int | None = None
    """Completions."""
    tool_timeout_s: float | None = None
    time_limit_s: float | None = None
    """Wall clock of the agent's whole run."""
    context_max_tokens: int | None = None


@record
class Episode:
    """One finished episode: graded, or broken with the reason."""

    schema: int = 1
    id: str
    task_id: str
    split: Split = "train"
    """Evaluation episodes are kept apart: no statistic, credit or trainer sees them."""
    step: int = 0
    """Training step in which it was sampled; 0 where nothing is trained. For an evaluation, the
    number of steps that the policy had learned from."""
    start: str = ""
    """Where it began: empty for the task's own beginning, else the name of its `Start`."""
    rollout: int = 0
    """Its number among the repeats of the task, from this start, in this step."""
    seed: int = 0
    reward: float | None
    """Mean of the criteria's values, by weight; in [0, 1] unless one is `unbounded`. Exactly
    1 is a success. None when the episode broke."""
    scores: tuple[Score, ...] = ()
    trajectory: Trajectory = Trajectory()
    failure: Failure | None = None
    earlier_failures: tuple[Failure, ...] = ()
    """Broken attempts before this one, oldest first."""
    sandbox: str = ""
    """Backend that ran it."""
    started_at: str = ""
    """UTC, ISO 8601."""
    seconds: Mapping[str, float] = field(factory=dict)
    """Wall-clock seconds by stage."""
    metadata: Mapping[str, Any] = field(factory=dict)

    @property
    def broken(self) -> bool:
        """No reward, because the infrastructure failed."""
        return self.reward is None
