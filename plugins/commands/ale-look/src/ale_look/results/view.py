"""Counts of attempts as a table and as JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import asdict

from ale.text import number, sampling_name, shorten, table
from ale_figures.statistics import Attempts, mean_pass_at
from ale_look.results.against import difference_line, differences, unpaired

_CAUSE = 60
_NAMED = 10


def default_ks(counted: Mapping[str, Attempts]) -> tuple[int, ...]:
    """1, and the largest k that every task with graded attempts allows."""
    graded = [attempts.n for attempts in counted.values() if attempts.n]
    return tuple(sorted({1, min(graded, default=1)}))


def as_text(
    counted: Mapping[str, Attempts],
    ks: Sequence[int],
    other: Mapping[str, Attempts] | None = None,
) -> str:
    """A line per task, and one per k; with another run one per k for the difference to it."""
    ks = tuple(dict.fromkeys(ks)) or default_ks(counted)
    header = ["task", "attempts", "passed", "broken", "reward", *(f"pass@{k}" for k in ks)]
    rows = [_row(task, attempts, ks) for task, attempts in counted.items()]
    lines = table([*header, "seconds", "last cause"], rows, right=range(1, len(header) + 1))
    made = [lines, "", *(_mean_line(mean) for mean in _means(counted, ks)), *_mixed(counted)]
    if other is not None:
        made += ["", "against the other run, paired by task", *_unpaired_line(counted, other)]
        made += (f"in the other run, {line}" for line in _mixed(other))
        made += map(difference_line, differences(counted, other, ks))
    return "\n".join(made)


def _unpaired_line(counted: Mapping[str, Attempts], other: Mapping[str, Attempts]) -> Iterator[str]:
    """A line where one run has tasks that the other lacks."""
    own, theirs = (len(tasks) for tasks in unpaired(counted, other).values())
    if own or theirs:
        yield f"left out: {_tasks(own)} of only this run, and {_tasks(theirs)} of only the other"


def _tasks(n: int) -> str:
    return "1 task" if n == 1 else f"{n} tasks"


def _mixed(counted: Mapping[str, Attempts]) -> Iterator[str]:
    """A line each where attempts at several temperatures, or of several steps, are one number."""
    found = {each for attempts in counted.values() for each in attempts.temperatures}
    if len(found) > 1:
        # The model's own comes last.
        ordered = sorted(found, key=lambda each: (each is None, each))
        names = ", ".join(map(sampling_name, ordered))
        yield f"{names} are counted together: --temperature chooses one"
    repeated = [attempts.steps for attempts in counted.values() if len(attempts.steps) > 1]
    if repeated:
        steps = sorted(set().union(*repeated))
        names = ", ".join(map(str, steps)) if len(steps) <= _NAMED else f"{steps[0]} to {steps[-1]}"
        yield f"steps {names} are counted together, also in pass@k: --step chooses one"


def _row(task: str, attempts: Attempts, ks: Sequence[int]) -> list[str]:
    return [
        task,
        str(attempts.n),
        str(attempts.passed),
        str(attempts.broken),
        _number(attempts.mean),
        *(_number(attempts.pass_at(k)) for k in ks),
        f"{_seconds(attempts):.1f}",
        shorten(attempts.cause, _CAUSE),
    ]


def _seconds(attempts: Attempts) -> float:
    """Mean wall-clock time of an episode, broken ones included."""
    return attempts.seconds / (attempts.n + attempts.broken)


def _number(value: float | None) -> str:
    return "-" if value is None else number(value)


def _means(counted: Mapping[str, Attempts], ks: Sequence[int]) -> list[dict[str, Any]]:
    made = []
    for k in ks:
        found = mean_pass_at(counted.values(), k)
        bounds = {"mean": found.mean, "interval_95": found.interval}
        made.append({"k": k, "tasks": found.tasks, **bounds})
    return made


def _mean_line(mean: Mapping[str, Any]) -> str:
    if mean["mean"] is None:
        return f"pass@{mean['k']}  no task has that many attempts"
    line = f"pass@{mean['k']}  {mean['mean']:.3f} of {_tasks(mean['tasks'])}"
    if mean["interval_95"] is None:
        return line
    low, high = mean["interval_95"]
    return f"{line}  (95% interval {low:.3f} to {high:.3f})"


def to_json(
    counted: Mapping[str, Attempts],
    ks: Sequence[int],
    other: Mapping[str, Attempts] | None = None,
) -> str:
    """The same, with every reward."""
    ks = tuple(dict.fromkeys(ks)) or default_ks(counted)
    tasks = {
        task: {
            "attempts": attempts.n,
            "passed": attempts.passed,
            "broken": attempts.broken,
            "rewards": attempts.rewards,
            "mean_reward": attempts.mean,
            "pass_at": {str(k): attempts.pass_at(k) for k in ks},
            "seconds": _seconds(attempts),
            "last_cause": attempts.cause or None,
        }
        for task, attempts in counted.items()
    }
    whole: dict[str, Any] = {"tasks": tasks, "pass_at": _means(counted, ks)}
    if other is not None:
        whole["against"] = [asdict(each) for each in differences(counted, other, ks)]
        whole["unpaired"] = unpaired(counted, other)
    return json.dumps(whole, indent=2)
