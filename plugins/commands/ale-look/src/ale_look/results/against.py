"""The attempts of two runs at the same tasks, task by task."""

from collections.abc import Mapping, Sequence

from attrs import frozen

from ale.errors import InputError
from ale_figures.statistics import Attempts, Estimate, estimate, holm, sign_flip


@frozen(kw_only=True)
class Difference:
    """pass@k of a run less that of the other, over the tasks that both have k attempts at."""

    k: int
    estimate: Estimate
    p: float
    """Two-sided p-value of the exact sign-flip test over tasks."""
    corrected: float
    """The same by Holm, over all k."""


def differences(
    own: Mapping[str, Attempts], other: Mapping[str, Attempts], ks: Sequence[int]
) -> list[Difference]:
    """Compare two runs; a k that no common task has is left out.

    Raises:
        InputError: they have no task in common.
    """
    common = [task for task in own if task in other]
    if not common:
        raise InputError.of("the two runs have no task in common", file="--against")
    by_k: list[tuple[int, list[float]]] = []
    for k in ks:
        pairs = [(own[task].pass_at(k), other[task].pass_at(k)) for task in common]
        found = [mine - theirs for mine, theirs in pairs if mine is not None and theirs is not None]
        if found:
            by_k.append((k, found))
    p_values = [sign_flip(found) for _, found in by_k]
    made = []
    for (k, found), p, corrected in zip(by_k, p_values, holm(p_values), strict=True):
        mean = estimate(found)
        assert mean is not None
        made.append(Difference(k=k, estimate=mean.within(-1.0, 1.0), p=p, corrected=corrected))
    return made


def unpaired(own: Mapping[str, Attempts], other: Mapping[str, Attempts]) -> dict[str, list[str]]:
    """Ids of the tasks that only one of two runs has attempts at: of ``this`` and of ``other``."""
    return {
        "this": [task for task in own if task not in other],
        "other": [task for task in other if task not in own],
    }


def difference_line(difference: Difference) -> str:
    """``pass@1  +0.083 over 12 tasks  (95% interval -0.020 to +0.186)  p 0.21, by Holm 0.42``."""
    found = difference.estimate
    tasks = "1 task" if found.n == 1 else f"{found.n} tasks"
    line = f"pass@{difference.k}  {found.mean:+z.3f} over {tasks}"
    if found.low is not None and found.high is not None:
        line += f"  (95% interval {found.low:+z.3f} to {found.high:+z.3f})"
    return f"{line}  p {difference.p:.2g}, by Holm {difference.corrected:.2g}"
