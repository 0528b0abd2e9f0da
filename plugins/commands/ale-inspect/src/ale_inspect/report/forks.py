"""Success before and after each turn of an expert, and which turns are crucial forks."""

from collections.abc import Iterator
from html import escape
from typing import Any

from ale.text import shorten, wilson
from ale_forks import LEVEL, Curve, Fork, Point
from ale_inspect.report.gathering import Facts

_ROWS = 1000
_SAID = 80


def forks(facts: Facts) -> Iterator[str]:
    """A row per fork, crucial ones marked; nothing where there are no two places to compare."""
    rows = [(curve, fork) for curve in facts.forks.curves for fork in curve.forks]
    if not rows:
        return
    crucial = sum(fork.crucial for _, fork in rows)
    yield '<section id="forks"><h2>Crucial forks</h2><p class="note">'
    yield f"{crucial:,} of {len(rows):,} turns of experts are crucial: success from before them is "
    yield "lower than from after them, by Fisher's exact test, one-sided, at "
    yield f"{LEVEL:g} over all turns of an expert (Holm). Counts are pooled over training steps, "
    yield "so over versions of the policy; <code>ale forks RUN --since STEP</code> leaves early "
    yield "ones out.</p>"
    if len(rows) > _ROWS:
        rows.sort(key=lambda row: (not row[1].crucial, row[1].p_value))
        yield f'<p class="note">{_ROWS:,} are here, the clearest.</p>'
    yield '<div class="scroll" tabindex="0"><table class="sortable"><thead><tr>'
    for name in ("task", "expert", "turn", "success before", "success after", "p-value", "fork"):
        yield f'<th scope="col">{name}</th>'
    yield '<th scope="col" data-plain>what the expert said</th></tr></thead><tbody>'
    for curve, fork in rows[:_ROWS]:
        yield from _row(curve, fork)
    yield "</tbody></table></div></section>"


def _row(curve: Curve, fork: Fork) -> Iterator[str]:
    said = "; ".join(curve.said[turn] for turn in fork.turns if turn in curve.said)
    tag = f"{curve.tag} of {curve.turns} turns" if curve.tag else f"of {curve.turns} turns"
    mark = '<span class="badge warn">crucial</span>' if fork.crucial else ""
    yield f"<tr><td>{escape(curve.task_id)}</td><td>{escape(tag)}</td>"
    yield f'<td data-value="{fork.before.p}">{turns_of(fork)}</td>'
    yield f"{_rate(fork.before)}{_rate(fork.after)}"
    yield f'<td class="num" data-value="{fork.p_value}">{fork.p_value:.2g}</td>'
    yield f'<td data-value="{int(fork.crucial)}">{mark}</td>'
    yield f'<td title="{escape(said)}">{escape(shorten(said, _SAID))}</td></tr>'


def _rate(point: Point) -> str:
    low, high = wilson(point.successes, point.trials)
    share = point.successes / point.trials
    return (
        f'<td data-value="{share:.4f}" title="95% interval {100 * low:.0f} to {100 * high:.0f}%">'
        f"{point.successes:,} of {point.trials:,}</td>"
    )


def turns_of(fork: Fork) -> str:
    """``3``, or ``3 to 5`` where no rollout started between them."""
    first, last = fork.turns[0], fork.turns[-1]
    return str(first) if first == last else f"{first} to {last}"


def on_chunk(fork: Fork) -> list[Any]:
    """A fork as the page's script reads it: turns, successes and trials, p-value, is it crucial?"""
    before, after = fork.before, fork.after
    return [
        turns_of(fork),
        *(before.successes, before.trials, after.successes, after.trials),
        float(f"{fork.p_value:.2g}"),
        fork.crucial,
    ]
