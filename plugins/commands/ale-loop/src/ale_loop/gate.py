"""Is a new version at least as good as the deployed one, on the held-out tasks?"""

import math
from collections.abc import Mapping, Sequence, Set

from attrs import frozen

from ale.text import sampling_name
from ale_figures.statistics import estimate
from ale_loop.options import GateOptions

ROUNDING = 1e-9
"""A difference that is below the threshold by no more than this is rounding, and reaches it."""

Rewards = Mapping[float | None, Mapping[tuple[str, int], float | None]]
"""By temperature, and by task and rollout; None is a broken episode."""


@frozen(kw_only=True)
class Compared:
    """Two versions at one temperature."""

    temperature: float | None
    """None: the model's own."""
    n: int
    """Held-out tasks with a reward under the deployed version."""
    broken: int
    """Those of them that broke under the new one, where they count 0."""
    left_out: int
    """Those that broke under the new one, and then under the deployed one too."""
    held_out: int
    """All held-out tasks."""
    deployed: float
    new: float
    """Their mean rewards on these."""
    difference: float
    low: float | None
    high: float | None
    """95% interval of the difference, by Student's t; None for one task."""

    def line(self) -> str:
        """It in words."""
        interval = (
            "" if self.low is None else f" (95% interval {self.low:+z.3f} to {self.high:+z.3f})"
        )
        broken = f", {self.broken} of them broken, which count 0" if self.broken else ""
        left_out = f"; {self.left_out} that break under both are left out" if self.left_out else ""
        return (
            f"{sampling_name(self.temperature)}: {self.difference:+z.3f}{interval}, "
            f"{self.new:.3f} after {self.deployed:.3f}, {self.n} tasks{broken}{left_out}"
        )


def compare(deployed: Rewards, new: Rewards, excused: Set[str] = frozenset()) -> list[Compared]:
    """Both versions at each temperature of the new one's evaluation.

    Args:
        excused: tasks that did not break by the new version: where they did, they are left out.
    """
    return [
        _compared(each, deployed.get(each, {}), rewards, excused) for each, rewards in new.items()
    ]


def broken(deployed: Rewards, new: Rewards) -> set[str]:
    """The tasks with a reward under the deployed version and none under the new one."""
    return {
        task
        for temperature, rewards in new.items()
        for task in _by_task(deployed.get(temperature, {})).keys() - _by_task(rewards).keys()
    }


def broke_since(before: Rewards, now: Rewards) -> set[str]:
    """The tasks that broke in an evaluation that one version had between two looks at it."""
    return {
        task
        for temperature, rewards in now.items()
        for (task, rollout), reward in rewards.items()
        if reward is None and (task, rollout) not in before.get(temperature, {})
    }


def unmeasured(rewards: Rewards, options: GateOptions) -> str | None:
    """Why nothing can be compared with a version; None if its rewards are enough."""
    for temperature, found in rewards.items():
        graded, held_out = len(_by_task(found)), len({task for task, _ in found})
        if not options.enough(graded, held_out):
            name = sampling_name(temperature)
            return f"{name}: only {graded} of {held_out} held-out tasks have a reward"
    return None if rewards else "it was not evaluated"


def refusal(compared: Sequence[Compared], options: GateOptions) -> str | None:
    """Why the new version is not deployed; None if it is."""
    if not compared:
        return "it was not evaluated"
    for each in compared:
        name = sampling_name(each.temperature)
        graded = each.n - each.broken
        if not options.enough(graded, each.held_out):
            return (
                f"{name}: only {graded} of {each.held_out} held-out tasks have a reward under "
                "both versions"
            )
        found = each.difference if options.measure == "mean" else each.low
        if found is None or found < options.threshold - ROUNDING:
            return f"{name}: {options.measure} {found:+z.3f} is below {options.threshold:+z.3f}"
    return None


def too_few(compared: Sequence[Compared], options: GateOptions) -> bool:
    """Have too few tasks a reward under both versions, at some temperature?"""
    return any(not options.enough(each.n - each.broken, each.held_out) for each in compared)


def _compared(
    temperature: float | None,
    deployed: Mapping[tuple[str, int], float | None],
    new: Mapping[tuple[str, int], float | None],
    excused: Set[str],
) -> Compared:
    before, after = _by_task(deployed), _by_task(new)
    left_out = (before.keys() - after.keys()) & excused
    tasks = sorted(before.keys() - left_out)
    rewards = [after.get(task, 0.0) for task in tasks]
    made = estimate([reward - before[task] for task, reward in zip(tasks, rewards, strict=True)])
    return Compared(
        temperature=temperature,
        n=len(tasks),
        broken=len(set(tasks) - after.keys()),
        left_out=len(left_out),
        held_out=len({task for task, _ in new}),
        deployed=_mean([before[task] for task in tasks]),
        new=_mean(rewards),
        difference=0.0 if made is None else made.mean,
        low=None if made is None else made.low,
        high=None if made is None else made.high,
    )


def _by_task(rewards: Mapping[tuple[str, int], float | None]) -> dict[str, float]:
    """The mean reward of each task, of its graded episodes."""
    found: dict[str, list[float]] = {}
    for (task, _), reward in rewards.items():
        if reward is not None:
            found.setdefault(task, []).append(reward)
    return {task: _mean(each) for task, each in found.items()}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
