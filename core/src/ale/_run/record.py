"""The results of one attempt at an episode so far, kept however the attempt ends."""

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field

from ale._run.damage import Damage
from ale._run.expert_guided import ExpertGuidedLLM
from ale._run.grading import reward
from ale._run.plan import EpisodePlan
from ale._store.codec import invalid_record
from ale.errors import AleError
from ale.middleware import Rewriting
from ale.protocols import Restoring
from ale.types import Episode, Failure, Score, Stage, Stop, Trajectory, Turn

BROKEN = Stop(reason="agent_error", detail="the episode broke while the agent ran")
_NOT_STARTED = Stop(reason="agent_error", detail="the agent was never started")


class StageTimer:
    """The stage that an attempt is in, and how long each stage took."""

    def __init__(self, monotonic: Callable[[], float], on_stage: Callable[[Stage], None]) -> None:
        """Start in the stage ``queued``, which is not timed.

        Args:
            on_stage: called whenever a stage is entered.
        """
        self.current: Stage = "queued"
        self.seconds: dict[str, float] = {}
        self._monotonic = monotonic
        self._on_stage = on_stage
        self._since = 0.0

    def enter(self, stage: Stage) -> None:
        """End the current stage and start another."""
        self.stop()
        self.current = stage
        self._on_stage(stage)

    def stop(self) -> None:
        """Add the time since the last call to the current stage."""
        now = self._monotonic()
        if self.current != "queued":
            spent = self.seconds.get(self.current, 0.0) + now - self._since
            self.seconds[self.current] = round(spent, 6)
        self._since = now


@define
class EpisodeRecord:
    """Turns, scores and errors of one attempt. The agent's recorder."""

    turns: list[Turn] = field(factory=list)
    stop: Stop = _NOT_STARTED
    scores: tuple[Score, ...] = ()
    turns_when_graded: dict[str, int] = field(factory=dict)
    """The number of turns recorded when a task step was graded, by the step's id."""
    teardown_errors: list[str] = field(factory=list)
    workdir: str | None = None
    """The workspace's path as commands saw it; their output may contain it."""
    tokenizer: str | None = None
    """Identity of the model's tokenizer; None if it is not known."""
    damage: Damage = field(factory=Damage)
    retryable: bool = True
    """False after an error that another attempt would only repeat."""
    restoring: Restoring | None = None
    expert_guided: ExpertGuidedLLM | None = None
    rewritings: list[Rewriting] = field(factory=list)
    """The middleware's rewritings, one per task step so far; empty without middleware."""

    def append(self, turn: Turn) -> None:
        """Record a turn.

        Raises:
            AleError: the agent passed something else.
        """
        if not isinstance(turn, Turn):
            raise AleError(f"the agent recorded {turn!r} instead of a Turn")
        self.turns.append(self.rewritings[-1].turn(turn) if self.rewritings else turn)

    @property
    def trajectory(self) -> Trajectory:
        """The turns so far, and why the agent stopped."""
        return Trajectory(turns=tuple(self.turns), stop=self.stop)

    def episode(self, plan: EpisodePlan, failure: Failure | None, **fields: Any) -> Episode:
        """The episode as it is stored.

        A record that could not be read back would make the whole run's file unreadable. Such an
        episode is stored as a failure, without what the plugins recorded.
        """
        episode = self._episode(plan, failure, **fields)
        problem = invalid_record(episode)
        if problem is None:
            return episode
        self.turns, self.scores, self.stop = [], (), Stop(reason="agent_error")
        message = f"a plugin recorded a value that can't be stored: {problem}"
        failure = Failure(stage="agent", kind="InvalidRecord", message=message)
        return self._episode(plan, failure, **fields)

    def _episode(self, plan: EpisodePlan, failure: Failure | None, **fields: Any) -> Episode:
        return plan.job.episode(
            reward=None if failure else reward(self.scores),
            scores=self.scores,
            trajectory=self.trajectory,
            failure=failure,
            metadata=self._metadata(plan),
            **fields,
        )

    def _metadata(self, plan: EpisodePlan) -> Mapping[str, Any]:
        rewritten = [fact for each in self.rewritings for fact in each.facts]
        known = {
            "workdir": self.workdir,
            "tokenizer": self.tokenizer,
            "steps": self.turns_when_graded if plan.job.task.steps else None,
            "middleware": rewritten if self.rewritings else None,
            "damaged": self.damage.message,
            "teardown": self.teardown_errors or None,
            "expert_turns": plan.start.expert_turns,
            "expert_next": self.expert_guided and self.expert_guided.expert_next,
        }
        restored = {} if self.restoring is None else self.restoring.facts
        return {**{key: fact for key, fact in known.items() if fact is not None}, **restored}


def failure_from(stage: Stage, error: Exception) -> Failure:
    """The failure as which an exception in this stage is recorded; its notes say where it was."""
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return Failure(
        stage=stage,
        kind=type(error).__name__,
        message=(str(error) or type(error).__name__) + notes,
        traceback="".join(traceback.format_exception(error)),
    )
