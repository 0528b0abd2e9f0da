"""Two runs of a benchmark side by side, paired by problem."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from attrs import frozen

from ale.errors import InputError
from ale.text import counted, table
from ale.types import Task
from ale_bench.results import Results, shown_ks
from ale_bench.tables import number, place
from ale_figures.statistics import Estimate, estimate

_IDS = 8
"""Ids of problems that one run alone solves, in the table; JSON has all."""


@frozen(kw_only=True)
class Difference:
    """pass@k of two runs over the problems that both have attempted k times."""

    k: int
    a: float | None
    """Mean of the first run over these problems."""
    b: float | None
    change: Estimate | None
    """Mean of b - a over the problems, with Student's 95% interval."""


@frozen(kw_only=True)
class Comparison:
    """Two runs on the same problems."""

    a: Results
    b: Results
    differences: Sequence[Difference]
    only_a: Sequence[str]
    """Problems of which an attempt passed in the first run and none in the second."""
    only_b: Sequence[str]
    both: int
    neither: int
    left_out: int
    """Problems without a graded attempt in one of the runs."""
    prompts_differ: int
    """Problems that are worded differently in the two runs."""


def compare(a: Results, b: Results) -> Comparison:
    """Compare two runs.

    Raises:
        InputError: their problems differ.
    """
    _check_same(a, b)
    paired = [each for each in a.attempts if a.attempts[each].n and b.attempts[each].n]
    solved = {each: (a.attempts[each].passed > 0, b.attempts[each].passed > 0) for each in paired}
    return Comparison(
        a=a,
        b=b,
        differences=[_difference(a, b, k) for k in shown_ks(min(a.k, b.k))],
        only_a=[each for each, found in solved.items() if found == (True, False)],
        only_b=[each for each, found in solved.items() if found == (False, True)],
        both=sum(found == (True, True) for found in solved.values()),
        neither=sum(found == (False, False) for found in solved.values()),
        left_out=len(a.tasks) - len(paired),
        prompts_differ=sum(task.goal != b.tasks[each].goal for each, task in a.tasks.items()),
    )


def _check_same(a: Results, b: Results) -> None:
    only_a, only_b = a.tasks.keys() - b.tasks.keys(), b.tasks.keys() - a.tasks.keys()
    if only_a or only_b:
        example = min(only_a or only_b)
        owner = place(a if only_a else b)
        message = (
            f"the runs have different problems: {len(only_a)} only in A, {len(only_b)} only in B; "
            f"'{example}' is only in {owner}"
        )
    else:
        changed = [each for each in a.tasks if _graded(a.tasks[each]) != _graded(b.tasks[each])]
        if not changed:
            return
        message = (
            f"the runs grade {len(changed)} of {counted(len(a.tasks), 'problem')} differently, "
            f"such as '{changed[0]}'"
        )
    raise InputError.of(message, expected="two runs of the same problems")


def _graded(task: Task) -> list[tuple[str, Mapping[str, Any]]]:
    return [(each.type, each.options) for each in task.criteria]


def _difference(a: Results, b: Results, k: int) -> Difference:
    pairs = [(a.attempts[each].pass_at(k), b.attempts[each].pass_at(k)) for each in a.attempts]
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    first, second = estimate([x for x, _ in known]), estimate([y for _, y in known])
    change = estimate([y - x for x, y in known])
    return Difference(
        k=k,
        a=None if first is None else first.mean,
        b=None if second is None else second.mean,
        change=None if change is None else change.within(-1.0, 1.0),
    )


def comparison_text(found: Comparison) -> str:
    """The two runs, a line per k, and which problems one of them alone solves."""
    rows = [
        [
            f"pass@{each.k}",
            number(each.a),
            number(each.b),
            "-" if each.change is None else f"{each.change.mean:+z.3f}",
            _bounds(each.change),
            "0" if each.change is None else str(each.change.n),
        ]
        for each in found.differences
    ]
    header = ["", "A", "B", "B - A", "95% interval", "problems"]
    lines = [
        _run("A", found.a),
        _run("B", found.b),
        "",
        table(header, rows, right=(1, 2, 3, 5)),
        "",
        f"solved by both {found.both}, by neither {found.neither}",
        _alone("A", found.only_a),
        _alone("B", found.only_b),
    ]
    if found.left_out:
        lines.append(f"left out: {counted(found.left_out, 'problem')} without a result in a run")
    if found.prompts_differ:
        lines.append(f"note: the prompts of {counted(found.prompts_differ, 'problem')} differ")
    return "\n".join(lines)


def _run(letter: str, results: Results) -> str:
    at = "" if results.temperature is None else f" at temperature {results.temperature:g}"
    return f"{letter}  {results.benchmark}, {results.model}{at}\n   {place(results)}"


def _bounds(found: Estimate | None) -> str:
    if found is None or found.low is None or found.high is None:
        return "-"
    if math.isclose(found.low, found.high, abs_tol=1e-9):
        return "- (all equal)"
    return f"{found.low:+z.3f} to {found.high:+z.3f}"


def _alone(letter: str, ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _IDS} more" if len(ids) > _IDS else ""
    names = f": {', '.join(ids[:_IDS])}{more}" if ids else ""
    return f"solved by {letter} alone {len(ids)}{names}"


def comparison_json(found: Comparison) -> str:
    """The same, with every id."""
    return json.dumps(
        {
            "a": str(found.a.path),
            "b": str(found.b.path),
            "pass_at": {
                str(each.k): {
                    "a": each.a,
                    "b": each.b,
                    "difference": None if each.change is None else attrs.asdict(each.change),
                }
                for each in found.differences
            },
            "solved_by_both": found.both,
            "solved_by_neither": found.neither,
            "solved_by_a_alone": list(found.only_a),
            "solved_by_b_alone": list(found.only_b),
            "left_out": found.left_out,
            "prompts_differ": found.prompts_differ,
        },
        indent=2,
    )
