"""A validation for the terminal and as JSON."""

import json
import textwrap
from collections.abc import Iterator, Sequence

from ale.text import counted, seconds, table
from ale_agent_oracle.validate.findings import Finding
from ale_agent_oracle.validate.phases import ATTACKS

WIDTH = 100


def findings_text(found: Sequence[Finding], *, attacks: bool) -> str:
    """A line per task, and what speaks against those that are not valid."""
    model = any(each.solved for each in found)
    header = ["task", "valid", "solution", "nothing", "hackable by", "time"]
    header += ["model"] * model
    rows = [_row(each, attacks=attacks, model=model) for each in found]
    parts = [table(header, rows, right=(2, 3, 5)), "", *_details(found)]
    good = sum(each.valid for each in found)
    unsure = not attacks or any(each.not_tried for each in found)
    untried = ", not all attacks tried" if attacks else ", no attack tried"
    parts.append(f"{good} of {counted(len(found), 'task')} valid{untried * unsure}")
    return "\n".join(parts)


def _row(each: Finding, *, attacks: bool, model: bool) -> list[str]:
    n = len(ATTACKS) - 1  # one of them looks for the answer instead
    tried = f" ({n - len(each.not_tried)} of {n} tried)" * bool(each.not_tried)
    first, *others = [*each.hackable_by] or ["-" if attacks else "not tried"]
    hackable = first + (f" and {len(others)} more" if others else "") + tried
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
                yield _filled(phrase)
            for phrase in each.notes:
                yield _filled(f"note: {phrase}")
    if any(each.problems or each.notes for each in found):
        yield ""


def _filled(phrase: str) -> str:
    """A phrase in lines; a name with a hyphen stays whole."""
    return textwrap.fill(
        phrase, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )


def findings_json(found: Sequence[Finding], sandbox: str, left_out: Sequence[str]) -> str:
    """Everything that was found.

    Args:
        left_out: problems with tasks that could not be read.
    """
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
    about = {
        "schema": 1,
        "sandbox": sandbox,
        "valid": all(e.valid for e in found) and not left_out,
        "left_out": left_out,
        "tasks": tasks,
    }
    return json.dumps(about, indent=2, ensure_ascii=False)


def _difficulty(each: Finding) -> dict[str, object] | None:
    rate = each.difficulty
    if rate is None or each.solved is None:
        return None
    return {"attempts": each.solved[0], "success": rate[0], "interval_95": rate[1]}
