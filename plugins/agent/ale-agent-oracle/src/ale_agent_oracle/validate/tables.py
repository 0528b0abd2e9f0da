"""A validation for the terminal and as JSON."""

import json
import textwrap
from collections.abc import Iterator, Sequence

from ale.text import counted, seconds, table
from ale_agent_oracle.validate.findings import Finding

WIDTH = 100


def findings_text(found: Sequence[Finding], *, attacks: bool) -> str:
    """A line per task, and what speaks against those that are not valid."""
    model = any(each.solved for each in found)
    header = ["task", "valid", "solution", "nothing", "hackable by", "time"]
    header += ["model"] * model
    rows = [_row(each, attacks=attacks, model=model) for each in found]
    parts = [table(header, rows, right=(2, 3, 5)), "", *_details(found)]
    good = sum(each.valid for each in found)
    parts.append(f"{good} of {counted(len(found), 'task')} valid")
    return "\n".join(parts)


def _row(each: Finding, *, attacks: bool, model: bool) -> list[str]:
    first, *others = [*each.hackable_by] or ["-" if attacks else "not tried"]
    hackable = first + (f" and {len(others)} more" if others else "")
    row = [
        each.task,
        "yes" if each.valid else "no",
        _rewards(each.solution),
        _rewards(each.nothing),
        hackable,
        seconds(each.agent_s),
    ]
    if model:
        rate = each.difficulty
        row.append("-" if rate is None else f"{rate[0]:.0%} ({rate[1][0]:.0%} to {rate[1][1]:.0%})")
    return row


def _rewards(rewards: Sequence[float | None]) -> str:
    """One number where all agree."""
    shown = dict.fromkeys("broken" if each is None else f"{each:.3g}" for each in rewards)
    return ", ".join(shown) or "-"


def _details(found: Sequence[Finding]) -> Iterator[str]:
    for each in found:
        if each.problems or each.notes:
            yield each.task
            for phrase in each.problems:
                yield textwrap.fill(phrase, WIDTH, initial_indent="  ", subsequent_indent="    ")
            for phrase in each.notes:
                yield textwrap.fill(
                    f"note: {phrase}", WIDTH, initial_indent="  ", subsequent_indent="    "
                )
    if any(each.problems or each.notes for each in found):
        yield ""


def findings_json(found: Sequence[Finding], sandbox: str) -> str:
    """Everything that was found."""
    tasks = {
        each.task: {
            "valid": each.valid,
            "problems": each.problems,
            "notes": each.notes,
            "solution": each.solution,
            "nothing": each.nothing,
            "hackable_by": each.hackable_by,
            "attacks_not_tried": each.not_tried,
            "solution_s": each.agent_s,
            "difficulty": _difficulty(each),
        }
        for each in found
    }
    about = {"schema": 1, "sandbox": sandbox, "valid": all(e.valid for e in found), "tasks": tasks}
    return json.dumps(about, indent=2, ensure_ascii=False)


def _difficulty(each: Finding) -> dict[str, object] | None:
    rate = each.difficulty
    if rate is None or each.solved is None:
        return None
    return {"attempts": each.solved[0], "success": rate[0], "interval_95": rate[1]}
