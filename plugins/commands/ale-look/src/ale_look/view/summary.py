"""A run as a whole, as JSON for the page: made of what the report counts."""

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ale.attempts import pass_at_k
from ale.intervals import wilson
from ale_figures.charts import Chart
from ale_figures.charts.rendering import chart_data, chart_label, chart_title
from ale_figures.statistics import mean_over_tasks
from ale_look.inspect.report.curves import constants, episode_charts, metric_charts
from ale_look.inspect.report.forks import ForkRow, fork_rows
from ale_look.inspect.report.gathering import Facts, Sums
from ale_look.inspect.report.page import about, documents, header, stages
from ale_look.inspect.report.tables import TaskRow, start_rows, task_rows

_RESULTS = ("Success", "Mean reward")
_CAUSES = 50
_TASKS = 5000
_OF_LEARNING = re.compile(
    r"(^|[._/ ])(loss|return|reward|entropy|kl|grad|ratio|mask(ed)?|clip(ped)?|stale|lag)([._/ ]|$)"
    r"|explained"
)
"""Metrics that say how learning goes; the others are bookkeeping."""


def summary(facts: Facts, credit: Chart | None) -> dict[str, Any]:
    """Everything but the episodes.

    Args:
        credit: the chart of its spread.
    """
    made = header(facts)
    made["tiles"] = [tile._asdict() for tile in made["tiles"]]
    return {
        **made,
        "progress": _progress(facts),
        "contested": facts.total().contested,
        "charts": _charts(facts, credit),
        "stages": stages(facts),
        **_tasks(facts),
        "pass_at": _pass_at(facts),
        **_starts(facts),
        **_forks(facts),
        "causes": [cause._asdict() for cause in facts.causes.common(_CAUSES)],
        "other_causes": facts.causes.others(_CAUSES),
        "about": [*about(facts)],
        "documents": [*documents(facts)],
    }


def _progress(facts: Facts) -> dict[str, Any] | None:
    """How far a running run has come; its end is known where the config says it."""
    if facts.state != "running":
        return None
    config = facts.manifest["config"]
    options: Mapping[str, Any] = config.get("run", {})
    done = len({step for values in facts.metrics.values() for step in values})
    if "trainer" in config:
        return {"unit": "steps", "done": done, "of": options.get("steps")}
    tasks, rollouts = facts.manifest.get("n_tasks"), options.get("rollouts")
    whole = tasks * rollouts if tasks and rollouts and options.get("steps") == 1 else None
    return {"unit": "episodes", "done": len(facts.heads), "of": whole}


def _charts(facts: Facts, credit: Chart | None) -> dict[str, Any] | None:
    steps = {step for _, step in facts.by_step} | {s for m in facts.metrics.values() for s in m}
    if len(steps) < 2:
        return None
    metrics = [chart for chart in metric_charts(facts) if chart.series]
    first = [chart for chart in metrics if _OF_LEARNING.search(chart.title)]
    more = [chart for chart in metrics if chart not in first]
    if credit is not None:
        first.insert(sum("loss" in chart.title for chart in first), credit)
    episodes = [chart for chart in episode_charts(facts) if chart.series]
    results = [chart for chart in episodes if chart.title in _RESULTS]
    more = [chart for chart in episodes if chart not in results] + more
    shown = {"results": results, "learning": first, "more": more}
    return {
        **{name: [_chart(chart) for chart in charts] for name, charts in shown.items()},
        "constants": [*constants(facts)],
    }


def _chart(chart: Chart) -> dict[str, Any]:
    return {
        **chart_data(chart),
        "title": chart_title(chart.title),
        "note": chart.note,
        "wide": chart.wide,
        "label": chart_label(chart),
    }


def _rate(sums: Sums) -> dict[str, Any]:
    found = sums.success()
    rate = dict(zip(("success", "low", "high"), found or (None, None, None), strict=True))
    return {**rate, "n": sums.n, "succeeded": sums.succeeded, "broken": sums.broken}


def _tasks(facts: Facts) -> dict[str, Any]:
    found = task_rows(facts, _TASKS)
    rows: Sequence[TaskRow] = found["tasks"]
    return {"tasks": [_task(row) for row in rows], "n_tasks": found["n_tasks"]}


def _task(row: TaskRow) -> dict[str, Any]:
    sums = row.sums
    return {
        "id": row.id,
        "kind": row.kind,
        "badge": row.badge,
        "goal": row.goal,
        **_rate(sums),
        "reward": sums.reward / sums.n if sums.n else None,
        "turns": sums.turns / sums.n if sums.n else None,
        "over_steps": row.over_steps,
    }


def _pass_at(facts: Facts) -> list[dict[str, Any]]:
    """pass@k over the training tasks for 1, 2, 4, ... attempts, up to what every task has."""
    counts = [(s.n, s.succeeded) for (kind, _), s in facts.by_task.items() if kind == "train"]
    most = min((n for n, _ in counts), default=0)
    found = []
    for k in (1 << power for power in range(most.bit_length())):
        trials = statistics.harmonic_mean([n / k for n, _ in counts])
        mean = mean_over_tasks((pass_at_k(n, won, k) for n, won in counts), trials)
        found.append({"k": k, "mean": mean.mean, "range": mean.interval, "tasks": mean.tasks})
    return found


def _starts(facts: Facts) -> dict[str, Any]:
    found = start_rows(facts)
    rows = [{"task": task, "start": start, **_rate(sums)} for task, start, sums in found["starts"]]
    return {"starts": rows, "n_starts": found["n_starts"]}


def _forks(facts: Facts) -> dict[str, Any]:
    found = fork_rows(facts)
    return {**found, "forks": [_fork(row) for row in found["forks"]]}


def _fork(row: ForkRow) -> dict[str, Any]:
    points = (row.fork.before, row.fork.after)
    before, after = (
        {"n": at.trials, "succeeded": at.successes, "range": wilson(at.successes, at.trials)}
        for at in points
    )
    fork = row.fork
    return {
        "task": row.task_id,
        "expert": row.expert,
        "turns": row.turns,
        "before": before,
        "after": after,
        "p": fork.p_harm if fork.harmful else fork.p_value,
        "verdict": "crucial" if fork.crucial else "harmful" if fork.harmful else "",
        "message": row.message,
    }
