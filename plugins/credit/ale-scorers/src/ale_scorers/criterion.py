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
        self._reduce = options.reduce

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """One value from those of the turns.

        Raises:
            GradingError: no turn has a value.
        """
        chunks = [
            Chunk(index=i, kind="message", spans=(whole_turn(i, turn),))
            for i, turn in enumerate(trajectory.turns)
        ]
        episode = Episode(id=task.id, task_id=task.id, reward=None, trajectory=trajectory)
        context = ScoringContext(task=task, episode=episode, earlier={})
        scores = await self._scorer.score(context, chunks)
        values = [score.value for score in scores if score.value is not None]
        if not values:
            reasons = "; ".join(dict.fromkeys(score.abstained for score in scores))
            raise GradingError(f"no turn has a score: {reasons or 'there is no turn'}")
        value = {"mean": mean(values), "min": min(values), "last": values[-1]}[self._reduce]
        lowest = min(scores, key=lambda score: 2.0 if score.value is None else score.value)
        detail = f"{self._reduce} of {len(values)} of {len(scores)} turns; lowest: {lowest.text}"
        return Score(criterion=_NAME, passed=value == 1, value=value, detail=detail)
