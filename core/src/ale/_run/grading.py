"""Grade a task: ask each criterion, check its score, and compute the reward."""

import math

from ale._run.parts import PreparedTask
from ale._run.timeouts import OverdueError, Supervisor
from ale.errors import GradingError
from ale.protocols import Criterion, Sandbox
from ale.types import CriterionSpec, Score, Trajectory, replace


async def grade(
    step: PreparedTask,
    trajectory: Trajectory,
    sandbox: Sandbox,
    supervisor: Supervisor,
    timeout_s: float,
) -> tuple[Score, ...]:
    """One score per criterion, in the order of the criteria.

    Args:
        timeout_s: time limit for each criterion, in seconds.

    Raises:
        GradingError: a criterion took too long, or returned an invalid score.
    """
    scores = []
    for spec, criterion in step.criteria:
        grading = criterion.grade(step.task, trajectory, sandbox)
        try:
            score = await supervisor.run(grading, timeout_s, f"criterion '{spec.type}'")
        except OverdueError as error:
            raise GradingError(str(error)) from error
        scores.append(_checked(score, spec, criterion))
    return tuple(scores)


def _checked(score: Score, spec: CriterionSpec, criterion: Criterion) -> Score:
    valid = isinstance(score, Score) and math.isfinite(score.value)
    valid = valid and (score.unbounded or 0.0 <= score.value <= 1.0)
    if not valid or score.passed != (score.value == 1.0):
        name = type(criterion).__qualname__
        raise GradingError(f"criterion '{spec.type}' ({name}) returned an invalid score: {score!r}")
    return replace(score, weight=spec.weight)


def reward(scores: tuple[Score, ...]) -> float:
    """Weighted mean of the criteria's values."""
    # Over a power of two, which is exact: large weights have a sum, and small ones a product.
    _, exponent = math.frexp(max(score.weight for score in scores))
    weights = [math.ldexp(score.weight, -exponent) for score in scores]
    parts = [weight * score.value for weight, score in zip(weights, scores, strict=True)]
    return math.fsum(parts) / math.fsum(weights)
