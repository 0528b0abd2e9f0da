"""What a policy does after training, beside its controls, and whether the difference is shown."""

import math
from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from ale_ablate.controls import FROZEN
from ale_ablate.measuring import Measured
from ale_ablate.texts import points
from ale_figures.statistics import LEVEL, Estimate, estimate, holm, least_p, sign_flip

Temperature = float | None
_MOST_SEEDS = 64


@frozen(kw_only=True)
class Decoded:
    """An arm or a control, decoded at one temperature."""

    cell: str
    """Name of its cell."""
    control: str
    """Which control it is; empty for an arm."""
    temperature: Temperature
    """None is the model's own."""
    before: Mapping[int, float]
    """Success on held-out tasks by seed, where the arms begin."""
    after: Mapping[int, float]
    """In the last evaluation."""

    @property
    def how(self) -> str:
        """``greedy``, ``at temperature 0.6``, or ``sampled`` at the model's own."""
        if self.temperature is None:
            return "sampled"
        return "greedy" if self.temperature == 0 else f"at temperature {self.temperature:g}"

    @property
    def name(self) -> str:
        """The cell, and how it is decoded."""
        return f"{self.cell}, {self.how}"

    @property
    def mean_before(self) -> Estimate | None:
        """Over seeds."""
        return _share(self.before)

    @property
    def mean_after(self) -> Estimate | None:
        """Over seeds."""
        return _share(self.after)


@frozen(kw_only=True)
class Compared:
    """An arm against one control, over the seeds that both have."""

    control: Decoded
    difference: Estimate
    p: float
    """Of the exact sign-flip test, two-sided."""
    corrected: float
    """The same by Holm, over all comparisons of the grid with controls."""


@frozen(kw_only=True)
class Claim:
    """That an arm does more than every control, at one temperature."""

    arm: Decoded
    compared: tuple[Compared, ...]
    """The control with the highest mean first."""
    missing: tuple[str, ...]
    """Controls without a completed run of a seed that the arm has."""
    n_comparisons: int

    @property
    def holds(self) -> bool:
        """Is the arm above every control, and each difference significant?"""
        shown = (each.difference.mean > 0 and each.corrected <= LEVEL for each in self.compared)
        return bool(self.compared) and not self.missing and all(shown)

    @property
    def sentence(self) -> str:
        """What the comparison shows."""
        if not self.compared:
            return f"{self.arm.name}: no control has completed with the same seed."
        best, found = self.compared[0], self.arm.mean_after
        assert found is not None
        assert best.control.mean_after is not None
        text = (
            f"{self.arm.name}: {100 * found.mean:.1f}%, {points(best.difference.mean)} points "
            f"against the best control: {best.control.name} "
            f"({100 * best.control.mean_after.mean:.1f}%){_bounds(best.difference)}. "
        )
        return text + self._verdict()

    def _verdict(self) -> str:
        n = min(each.difference.n for each in self.compared)
        test = f"exact sign-flip test over {n} seeds, Holm over {self.n_comparisons} comparisons"
        worst = max(self.compared, key=lambda each: each.corrected)
        if self.missing:
            return f"Not shown: no completed run of {', '.join(self.missing)}."
        if self.holds:
            claim = "It learned what no control did"
            return f"{claim}: p is at most {worst.corrected:.2g} against each ({test})."
        if least_p(n) * self.n_comparisons > LEVEL and self.compared[0].difference.mean > 0:
            wanted = next(k for k in range(_MOST_SEEDS) if least_p(k) * self.n_comparisons <= LEVEL)
            return (
                f"Not shown: {n} {'seed is' if n == 1 else 'seeds are'} too few for "
                f"{self.n_comparisons} comparisons, which need {wanted}."
            )
        if self.compared[0].difference.mean <= 0:
            return f"Not shown: {self.compared[0].control.name}, does as well without rewards."
        return f"Not shown: p is {worst.corrected:.2g} against {worst.control.name} ({test})."


def claims(runs: Sequence[Measured]) -> tuple[list[Decoded], list[Claim]]:
    """Arms and controls by temperature, and a claim for each arm, greedy and as it was trained.

    Args:
        runs: of a grid with controls, in any state; those that are not completed are left out.

    Source: see `ale_figures.statistics.sign_flip` and `ale_figures.statistics.holm`.
    """
    absent = [
        cell.name
        for cell in dict.fromkeys(run.slot.cell for run in runs if run.slot.cell.control)
        if not any(run.slot.cell == cell and run.state == "completed" for run in runs)
    ]
    decoded = list(_decoded([run for run in runs if run.state == "completed"]))
    pairs: list[tuple[Decoded, Decoded, list[float]]] = []
    arms = [each for each in decoded if not each.control]
    for arm in arms:
        for control in (each for each in decoded if _comparable(arm, each)):
            seeds = [seed for seed in arm.after if seed in control.after]
            pairs.append((arm, control, [arm.after[s] - control.after[s] for s in seeds]))
    known = [pair for pair in pairs if pair[2]]
    p_values = [sign_flip(differences) for *_, differences in known]
    made: dict[int, list[Compared]] = {id(arm): [] for arm in arms}
    for (arm, control, differences), p, corrected in zip(
        known, p_values, holm(p_values), strict=True
    ):
        found = estimate(differences)
        assert found is not None
        made[id(arm)].append(
            Compared(control=control, difference=found.within(-1.0, 1.0), p=p, corrected=corrected)
        )
    return decoded, [
        Claim(
            arm=arm,
            compared=tuple(sorted(made[id(arm)], key=_height, reverse=True)),
            missing=(*absent, *(c.name for a, c, found in pairs if a is arm and not found)),
            n_comparisons=len(known),
        )
        for arm in arms
    ]


def _height(compared: Compared) -> float:
    mean = compared.control.mean_after
    return -math.inf if mean is None else mean.mean


def _comparable(arm: Decoded, control: Decoded) -> bool:
    """A trained control is decoded as the arm is, the frozen policy at each temperature."""
    if not control.control:
        return False
    return control.control == FROZEN or (control.temperature == 0) == (arm.temperature == 0)


def _decoded(runs: Sequence[Measured]) -> Iterator[Decoded]:
    for cell in dict.fromkeys(run.slot.cell for run in runs):
        own = [run for run in runs if run.slot.cell == cell]
        common = set.intersection(*(set(run.evaluations) for run in own))
        temperatures = sorted(common, key=lambda each: math.inf if each is None else each)
        if cell.control != FROZEN:  # what was measured between the two is not compared
            temperatures = [each for each in temperatures if each in (0.0, temperatures[-1])]
        for temperature in temperatures:
            yield Decoded(
                cell=cell.name,
                control=cell.control,
                temperature=temperature,
                before=_at_start(own, temperature) if cell.control != FROZEN else {},
                after={run.slot.seed: run.evaluations[temperature][-1][1] for run in own},
            )


def _at_start(runs: Sequence[Measured], temperature: Temperature) -> dict[int, float]:
    found = {run.slot.seed: dict(run.evaluations[temperature]).get(run.start) for run in runs}
    return {seed: value for seed, value in found.items() if value is not None}


def _share(values: Mapping[int, float]) -> Estimate | None:
    found = estimate(list(values.values()))
    return found and found.within(0.0, 1.0)


def _bounds(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return ""
    return f", 95% interval {points(found.low)} to {points(found.high)}"
