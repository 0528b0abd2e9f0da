"""The training steps of a run as a table: a row per step, and a line per evaluation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ale.runs import Index
from ale.text import number, rate_line, sampling_name, table

_MOST = 60
"""Rows of the table: those of a long run would scroll the summary away."""
_METRICS = {
    "reward": ("mean_reward",),
    "success": ("success",),
    "return": ("mean_return",),
    "loss": ("loss",),
    "kl": ("kl_rollout", "kl_sampler", "kl"),
    "tokens": ("tokens_trained",),
    "broken": ("broken",),
}
"""Columns and the metrics that they show: the first that a step has."""
_IF_ANY = ("return", "kl")
"""Columns that are left out where no step has their metric."""
_WHOLE = ("tokens", "broken")


def training_steps(events: Iterable[Mapping[str, Any]]) -> Mapping[int, Mapping[str, float]]:
    """The metrics of each finished step of a run that trains; empty for a run that only samples.

    Args:
        events: the run's. Of a step that was done again after a resume, the later one counts.
    """
    found = {
        event["step"]: event.get("metrics") or {}
        for event in events
        if event.get("event") == "step_finished"
    }
    trained = any("updates" in metrics or "loss" in metrics for metrics in found.values())
    return found if trained else {}


def steps_table(
    steps: Mapping[int, Mapping[str, float]], index: Index, evaluation: str, *, every: bool
) -> Iterator[str]:
    """The table, of the last steps or of all.

    Args:
        evaluation: its name, as of `names_of`.
    """
    held_out = {step: _held_out(index, step) for step in index.steps("evaluation")}
    numbers = sorted(steps)
    shown = numbers if every else numbers[-_MOST:]
    if more := len(numbers) - len(shown):
        yield f"{more:,} earlier steps; --all lists every step and task"
    found = {step: {name: _value(name, steps[step]) for name in _METRICS} for step in shown}
    had = {name for row in found.values() for name, value in row.items() if value is not None}
    names = [name for name in _METRICS if name in had or name not in _IF_ANY]
    yield table(
        ["step", *names, f"{evaluation} after it"],
        [
            [str(step), *(_cell(name, row[name]) for name in names), held_out.get(step + 1, "")]
            for step, row in found.items()
        ],
        right=range(len(names) + 1),
    )


def _value(name: str, metrics: Mapping[str, float]) -> float | None:
    return next((metrics[each] for each in _METRICS[name] if each in metrics), None)


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name == "success":
        return f"{100 * value:.0f}%"
    if name == "kl":
        return f"{value:.3g}"
    return f"{value:,.0f}" if name in _WHOLE else number(value)


def _held_out(index: Index, step: int) -> str:
    """``greedy 83%, sampled 71%``: success in the evaluation after so many steps."""
    shares = []
    for temperature, attempts in sorted(index.attempts(step).items(), key=_by_temperature):
        n, succeeded = (sum(each[i] for each in attempts.values()) for i in (0, 1))
        share = f"{100 * succeeded / n:.0f}%" if n else "none graded"
        shares.append(f"{sampling_name(temperature)} {share}")
    return ", ".join(shares)


def _by_temperature(item: tuple[float | None, object]) -> float:
    return float("inf") if item[0] is None else item[0]


def evaluation_lines(index: Index, evaluation: str) -> Sequence[str]:
    """A line for each evaluation and temperature; `evaluation` as of `steps_table`."""
    name, _, what = evaluation.partition(", ")
    return [
        f"{name:<12} {rate_line(attempts.values())} after {step} steps, "
        f"{sampling_name(temperature)}{f', {what}' if what else ''}"
        for step in index.steps("evaluation")
        for temperature, attempts in sorted(index.attempts(step).items(), key=_by_temperature)
    ]
