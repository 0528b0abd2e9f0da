"""Results for the terminal and as JSON."""

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ale.runs import SUCCESS
from ale.text import counted, table
from ale_bench.offered import Offered
from ale_bench.results import Results, shown_ks
from ale_figures.statistics import MeanOverTasks

_NAMED = 20


def benchmarks_text(found: Sequence[Offered]) -> str:
    """A line per benchmark; JSON has its package too."""
    rows = [
        [
            each.benchmark.name,
            _problems(each.benchmark.problems),
            each.benchmark.criterion,
            each.missing or "nothing",
        ]
        for each in found
    ]
    return table(["benchmark", "problems", "graded by", "needs"], rows)


def _problems(problems: Mapping[str, int]) -> str:
    split, number = next(iter(problems.items()), ("", 0))
    return f"{number:,} {split}" if number else "-"


def benchmarks_json(found: Sequence[Offered]) -> str:
    """The same, with the problems of every split."""
    return _json(
        [
            {
                "name": each.benchmark.name,
                "package": each.distribution,
                "tasks": {"type": each.component.name, **each.benchmark.tasks},
                "problems": dict(each.benchmark.problems),
                "criterion": each.benchmark.criterion,
                "agent": each.benchmark.agent,
                "sandbox": each.benchmark.sandbox,
                "groups": list(each.benchmark.groups),
                "needs": each.missing or None,
                "home": each.benchmark.home or None,
            }
            for each in found
        ]
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def results_text(results: Results) -> str:
    """A line per k, a table per group, and what is not counted."""
    parts = [_title(results), "", _overall(results)]
    for key, values in results.groups.items():
        parts += ["", _group(results, key, values)]
    notes = [*_notes(results)]
    return "\n".join([*parts, *([""] if notes else []), *notes])


def _title(results: Results) -> str:
    # Each step of a run takes k samples anew.
    taken = [max(results.k, each.n + each.broken) for each in results.attempts.values()]
    least, most = min(taken, default=results.k), max(taken, default=results.k)
    samples = ("" if least == most else f"{least} to ") + counted(most, "sample")
    at = "" if results.temperature is None else f" at temperature {results.temperature:g}"
    return (
        f"{results.benchmark}: {counted(len(results.tasks), 'problem')}, {samples} each\n"
        f"{results.model}{at}, agent {results.agent}, sandbox {results.sandbox}"
    )


def _measures(results: Results, ids: Iterable[str] | None = None) -> dict[str, MeanOverTasks]:
    chosen = None if ids is None else [*ids]
    made = {f"pass@{k}": results.pass_at(k, chosen) for k in shown_ks(results.k)}
    if results.votes:
        made[f"maj@{results.k}"] = results.majority(chosen)
    return made


def _overall(results: Results) -> str:
    rows = [
        [name, number(found.mean), bounds(found.interval), str(found.tasks)]
        for name, found in _measures(results).items()
    ]
    return table(["", "mean", "95% interval", "problems"], rows, right=(1, 3))


def _group(results: Results, key: str, values: Mapping[str, Sequence[str]]) -> str:
    last = f"pass@{results.k}"
    named = [last] * (results.k > 1) + [f"maj@{results.k}"] * results.votes
    rows = []
    for value, ids in values.items():
        measures = _measures(results, ids)
        first = measures["pass@1"]
        rest = (number(measures[name].mean) for name in named)
        rows.append([value, str(len(ids)), number(first.mean), bounds(first.interval), *rest])
    header = [key, "problems", "pass@1", "95% interval", *named]
    return table(header, rows, right=(1, 2, *range(4, len(header))))


def number(value: float | None) -> str:
    """``0.467``, or ``-``."""
    return "-" if value is None else f"{value:.3f}"


def bounds(interval: tuple[float, float] | None) -> str:
    """``0.391 to 0.543``, or ``-``."""
    return "-" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"


def _notes(results: Results) -> Iterator[str]:
    if results.unfinished:
        where = shlex.quote(place(results))
        yield f"unfinished: {counted(results.unfinished, 'problem')} of {len(results.tasks)}"
        yield "  the same ale eval command continues it; or these two:"
        yield f"  ale run --resume {where}"
        yield f"  ale eval {where}"
    if results.broken:
        attempts = counted(results.broken, "attempt")
        yield f"broken: {attempts} without a result, not counted as failures"
        yield from (f"  {cause}" for cause in results.causes)
    if results.regraded is not None:
        file, rewards = results.regraded
        won = sum(reward == SUCCESS for reward in rewards.values())
        attempts = counted(len(rewards), "attempt")
        yield f"regraded: {won} of {attempts} succeed by newer scores, which are in {file}"
        others = sum(len(each.rewards) + each.broken for each in results.attempts.values())
        if (others := others - len(rewards)) > 0:
            yield f"  {counted(others, 'attempt')} without a newer score in it"
    if results.contested:
        attempts = counted(len(results.contested), "attempt")
        yield f"contested: {attempts} passed, and may have made the verdict itself"
        yield from (f"  {id}" for id in islice(results.contested, _NAMED))
        if (more := len(results.contested) - _NAMED) > 0:
            yield f"  and {more:,} more, which --json lists"
        counts = "--set run.contested=failed counts them as failures"
        if not any(results.contested.values()):
            counts = "none counts as a success (run.contested)"
        yield f"  {counts}; ale show RUN EPISODE says why"


def results_json(results: Results) -> str:
    """Everything: each k, each group, and each problem's rewards and answers."""
    ks = range(1, results.k + 1)
    return _json(
        {
            "benchmark": results.benchmark,
            "run": str(results.path),
            "model": results.model,
            "temperature": results.temperature,
            "agent": results.agent,
            "sandbox": results.sandbox,
            "samples": results.k,
            "problems": len(results.tasks),
            "unfinished": results.unfinished,
            "broken": results.broken,
            "causes": list(results.causes),
            "contested": list(results.contested),
            "pass_at": {str(k): _mean(results.pass_at(k)) for k in ks},
            "majority": _mean(results.majority()) if results.votes else None,
            "groups": {
                key: {value: _of_group(results, ids) for value, ids in values.items()}
                for key, values in results.groups.items()
            },
            "tasks": {
                name: {
                    "rewards": each.rewards,
                    "answers": each.answers,
                    "broken": each.broken,
                    "pass_at": {str(k): each.pass_at(k) for k in ks},
                }
                for name, each in results.attempts.items()
            },
        }
    )


def _of_group(results: Results, ids: Sequence[str]) -> dict[str, Any]:
    measures = {name: _mean(found) for name, found in _measures(results, ids).items()}
    return {"problems": len(ids), **measures}


def _mean(found: MeanOverTasks) -> dict[str, Any]:
    return {"problems": found.tasks, "mean": found.mean, "interval_95": found.interval}


def place(results: Results) -> str:
    """The run's folder, relative to this one where it is below it."""
    relative = os.path.relpath(results.path)
    return str(results.path) if relative.startswith("..") else relative
