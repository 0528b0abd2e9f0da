"""Success over training as charts: a curve per cell, with the interval over its seeds."""

from collections.abc import Callable

from attrs import evolve

from ale_ablate.comparing import Comparison, Row
from ale_ablate.measuring import Curve, Measured
from ale_figures.charts import Chart, Series
from ale_figures.statistics import estimate

_BAND = "mean over seeds; band: 95% interval over seeds (Student's t)"


def charts(comparison: Comparison) -> list[Chart]:
    """Charts of the completed runs; none where no curve has two points."""
    made = []
    if comparison.held_out:
        held_out = _chart(comparison, "Success on held-out tasks", lambda run: run.held_out)
        greedy = _chart(comparison, "Greedy success on held-out tasks", lambda run: run.greedy)
        made += [held_out, greedy, _by_rollouts(comparison)]
    made.append(_chart(comparison, "Success on training tasks", lambda run: run.train))
    return [chart for chart in made if chart is not None]


def _chart(comparison: Comparison, title: str, curve: Callable[[Measured], Curve]) -> Chart | None:
    series = tuple(
        Series(name=row.cell.name, colour=row.number - 1, **points)
        for row in comparison.rows
        if (points := _points(row, curve))
    )
    if not any(len(each.xs) > 1 for each in series):
        return None
    return Chart(title=title, series=series, note=_BAND, share=True)


def _points(row: Row, curve: Callable[[Measured], Curve]) -> dict[str, tuple[float, ...]]:
    """Mean and band, at the steps that every completed run has."""
    found = [dict(curve(run)) for run in row.runs if run.state == "completed" and curve(run)]
    steps = sorted(set.intersection(*(set(each) for each in found))) if found else []
    means = [estimate([each[step] for each in found]) for step in steps]
    known = [each.within(0.0, 1.0) for each in means if each is not None]
    if not known:
        return {}
    points = {"xs": tuple(map(float, steps)), "ys": tuple(each.mean for each in known)}
    if len(found) > 1:
        points["low"] = tuple(each.low for each in known if each.low is not None)
        points["high"] = tuple(each.high for each in known if each.high is not None)
    return points


def _by_rollouts(comparison: Comparison) -> Chart | None:
    """Success over rollouts, where cells use different numbers of them per step."""
    steps = _chart(comparison, "", lambda run: run.held_out)
    if steps is None:
        return None
    moved = []
    for each in steps.series:
        row = comparison.rows[each.colour]
        runs = [run for run in row.runs if run.state == "completed"]
        used = [[_before(run, step) for step in each.xs] for run in runs]
        xs = tuple(sum(column) / len(column) for column in zip(*used, strict=True))
        moved.append(evolve(each, xs=xs))
    if len({each.xs for each in moved}) < 2:
        return None
    title, note = "Success on held-out tasks over rollouts", f"{_BAND}; rollouts: their mean"
    return Chart(title=title, series=tuple(moved), note=note, share=True, x="rollout")


def _before(run: Measured, step: float) -> int:
    """Rollouts that the policy had learned from after this many steps."""
    return sum(n for at, n in run.rollouts_by_step.items() if at < step)
