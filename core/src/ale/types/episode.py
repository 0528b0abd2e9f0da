"""An episode: one attempt at one task, from sandbox to reward."""

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field

from ale.types._record import record
from ale.types.trajectory import Trajectory, Turn

Split = Literal["train", "evaluation"]
Stage = Literal["queued", "sandbox", "setup", "agent", "grading", "teardown"]


@record
class Score:
    """The result of one criterion."""

    criterion: str
    passed: bool
    value: float
    """In [0, 1], or any finite number if `unbounded`; 1 exactly when the criterion holds."""
    weight: float = 1.0
    """0 for a task step that does not count towards the reward."""
    detail: str = ""
    """The reason, for a human reader, with an excerpt of the evidence."""
    answer: str | None = None
    """If the criterion reads an answer: the agent's answer as a short text that is the same for
    equal answers. For majority votes over attempts."""
    ends_task: bool = False
    """The following steps of the task are skipped."""
    kept: str | None = None
    """Folder in the run's directory with files that the criterion saved."""
    timed_out: bool = False
    """A time limit of the criterion ended what it ran; the value counts that as a failure."""
    contested: float | None = None
    """The value without what the agent changed of the check's own tools, if that is another one:
    nobody can tell whether these were its work or a forgery. ``run.contested`` says what counts."""
    used: tuple[str, ...] | None = None
    """The paths that the agent has changed and the check has used, and all that the agent has
    removed, of a pass that was given in a judge; at most 500. For what is in an installed package,
    or in git's objects, that folder's. None if it is not known."""
    unbounded: bool = False
    """The value is on the scale of the task's own tests, not in [0, 1]."""


@record
class Failure:
    """Why an episode is broken: an infrastructure error, not a mistake of the agent."""

    stage: Stage
    kind: str
    """Name of the error's class."""
    message: str
    traceback: str = ""


@record
class Limits:
    """Limits of an agent. None is no limit."""

    max_steps: int | None = None
    """Most tool calls."""
    max_turns: int | None = None
    """Most completions."""
    tool_timeout_s: float | None = None
    time_limit_s: float | None = None
    """Wall-clock seconds of the agent's whole run."""
    context_max_tokens: int | None = None


@record
class Episode:
    """One finished episode: graded, or broken with the reason."""

    schema: int = 1
    id: str
    task_id: str
    split: Split = "train"
    """Evaluation episodes are excluded from statistics, credit and training."""
    step: int = 0
    """Training step for which it was drawn; 0 if nothing is trained. With ``schedule: stream``
    another step may learn from it; ``groups.jsonl`` says which. For an evaluation, the number of
    steps that the policy had learned from."""
    start: str = ""
    """Name of its `Start`; empty for the task's initial state."""
    rollout: int = 0
    """Number among the repeats of the task from this start in this step."""
    seed: int = 0
    temperature: float | None = None
    """The temperature of an evaluation; None: the one that the model is configured with."""
    reward: float | None
    """Weighted mean of the criteria's values; in [0, 1] unless one is `unbounded`. Exactly 1 is a
    success. None if the episode is broken."""
    scores: tuple[Score, ...] = ()
    trajectory: Trajectory = Trajectory()
    failure: Failure | None = None
    earlier_failures: tuple[Failure, ...] = ()
    """Broken attempts before this one, oldest first."""
    sandbox: str = ""
    """The sandbox backend that ran it."""
    started_at: str = ""
    """Start time in UTC, ISO 8601."""
    seconds: Mapping[str, float] = field(factory=dict)
    """Wall-clock seconds by stage."""
    metadata: Mapping[str, Any] = field(factory=dict)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns of its trajectory."""
        return self.trajectory.turns

    @property
    def broken(self) -> bool:
        """No reward, because the infrastructure failed."""
        return self.reward is None

    @property
    def timed_out(self) -> bool:
        """Whether a criterion's time limit ended what it ran; the episode is graded."""
        return any(score.timed_out for score in self.scores)

    @property
    def contested(self) -> bool:
        """Whether a verdict used files that the agent changed, whatever it counts as."""
        return any(score.contested is not None for score in self.scores)

    @property
    def damaged(self) -> str | None:
        """How the agent left the sandbox unable to run commands; None if it did not."""
        return self.metadata.get("damaged")

    @property
    def egress(self) -> Mapping[str, Any] | None:
        """The `ale.types.EgressLedger` as it is stored; None if the sandbox records none."""
        return self.metadata.get("egress")
