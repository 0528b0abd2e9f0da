"""Success before and after each turn of an expert, and which turns are crucial forks."""

from typing import Any, NamedTuple

from ale_figures.forks import LEVEL, Curve, Fork
from ale_look.inspect.report.gathering import Facts

_ROWS = 1000


class ForkRow(NamedTuple):
    """One turn of an expert, or several between which no rollout started."""

    task_id: str
    expert: str
    turns: str
    fork: Fork
    message: str


def fork_rows(facts: Facts) -> dict[str, Any]:
    """A row per fork; none where there are no two places to compare."""
    found = [(curve, fork) for curve in facts.forks.curves for fork in curve.forks]
    if len(found) > _ROWS:
        found.sort(
            key=lambda row: (
                not (row[1].crucial or row[1].harmful),
                min(row[1].p_value, row[1].p_harm),
            )
        )
    return {
        "forks": [_row(curve, fork) for curve, fork in found[:_ROWS]],
        "n_forks": len(found),
        "n_crucial": sum(fork.crucial for _, fork in found),
        "n_harmful": sum(fork.harmful for _, fork in found),
        "level": LEVEL,
    }


def _row(curve: Curve, fork: Fork) -> ForkRow:
    message = "; ".join(curve.replayed[turn] for turn in fork.turns if turn in curve.replayed)
    return ForkRow(
        task_id=curve.task_id,
        expert=f"{curve.tag} of {curve.turns} turns" if curve.tag else f"of {curve.turns} turns",
        turns=turns_of(fork),
        fork=fork,
        message=message,
    )


def turns_of(fork: Fork) -> str:
    """``3``, or ``3 to 5`` where no rollout started between them."""
    first, last = fork.turns[0], fork.turns[-1]
    return str(first) if first == last else f"{first} to {last}"


def on_chunk(fork: Fork) -> list[Any]:
    """A fork as the page's script reads it: turns, successes and trials, p-value, crucial."""
    before, after = fork.before, fork.after
    return [
        turns_of(fork),
        *(before.successes, before.trials, after.successes, after.trials),
        float(f"{fork.p_value:.2g}"),
        fork.crucial,
    ]
