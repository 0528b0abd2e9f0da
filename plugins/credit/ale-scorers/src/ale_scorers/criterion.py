"""The criterion ``step_scores``: an outcome from the scores of an agent's turns."""

from ale.attempts import mean
from ale.errors import GradingError
from ale.protocols import Sandbox, ScoringContext, StepScorer
from ale.types import Chunk, Episode, Score, Task, Trajectory, whole_turn
from ale_scorers.options import StepScoresOptions

_NAME = "step_scores"


class StepScores:
    """Grades what the agent wrote and saw; the sandbox is not looked at."""

    def __init__(self, options: StepScoresOptions) -> None:
        self._scorer: StepScorer = options.scorer
        self._reduce, self._floor = options.reduce, options.floor

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """One value from those of the turns.

        Raises:
            GradingError: too few turns have a value, or one has a value outside [0, 1].
        """
        chunks = [
            Chunk(index=i, kind="message", spans=(whole_turn(i, turn),))
            for i, turn in enumerate(trajectory.turns)
        ]
        episode = Episode(id=task.id, task_id=task.id, reward=None, trajectory=trajectory)
        context = ScoringContext(task=task, episode=episode, earlier={})
        scores = await self._scorer.score(context, chunks)
        values = [score.value for score in scores if score.value is not None]
        if len(scores) != len(chunks):
            raise GradingError(f"the scorer gave {len(scores)} scores for {len(chunks)} turns")
        if wrong := [value for value in values if not 0 <= value <= 1]:
            raise GradingError(f"the scorer gave {wrong[0]!r}, expected a number from 0 to 1")
        if not values or len(values) / len(scores) < self._floor:
            reasons = "; ".join(dict.fromkeys(each.abstained for each in scores if each.abstained))
            few = f"{len(values)} of {len(scores)} turns have a score"
            raise GradingError(f"{few}: {reasons or 'there is no turn'}")
        value = {"mean": mean(values), "min": min(values), "last": values[-1]}[self._reduce]
        lowest = min(scores, key=lambda score: 2.0 if score.value is None else score.value)
        detail = f"{self._reduce} of {len(values)} of {len(scores)} turns; lowest: {lowest.text}"
        return Score(criterion=_NAME, passed=value == 1, value=value, detail=detail)
