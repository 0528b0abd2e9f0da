"""Several attempts at each task, summed up: pass@k, and what the majority of them does."""

import math
import statistics
from collections.abc import Iterable, Sequence

from attrs import frozen


def mean(values: Sequence[float]) -> float:
    """Mean of at least one finite number, also where their sum is too large for a float."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return statistics.mean(values)


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Probability that at least one of k attempts, drawn from n without replacement, passes.

    Args:
        n: attempts.
        c: attempts that passed.
        k: attempts drawn.

    Returns:
        In [0, 1]; None where there are fewer than k attempts.

    Raises:
        ValueError: not 0 <= c <= n, or k below 1.

    Source: arXiv:2107.03374, Eq. 1 (unbiased).
    """
    if not 0 <= c <= n or k < 1:
        raise ValueError(f"n={n}, c={c}, k={k}")
    if n < k:
        return None
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


@frozen(kw_only=True)
class Repeats:
    """The tasks of an evaluation with several samples of each."""

    k: int
    """Graded samples of every task: the fewest that one has."""
    pass_at_k: float
    """Mean over tasks."""
    majority: float
    """Share of tasks of whose graded samples more than half succeeded."""


def repeats(attempts: Iterable[tuple[int, int]]) -> Repeats | None:
    """Sum up the tasks of an evaluation.

    Args:
        attempts: of each task, how many were graded and how many of them succeeded. A task without
            a graded one is left out.

    Returns:
        None where a task has a single one.
    """
    graded = [(n, c) for n, c in attempts if n]
    k = min((n for n, _ in graded), default=0)
    if k < 2:
        return None
    passed = [pass_at_k(n, c, k) or 0.0 for n, c in graded]
    majority = sum(2 * c > n for n, c in graded) / len(graded)
    return Repeats(k=k, pass_at_k=math.fsum(passed) / len(passed), majority=majority)
