"""Tables in Markdown and pictures in SVG."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import isnan
from statistics import median

from measured import Numbers, Row, Table, p_values

from ale.text import counted
from ale_figures.statistics import Estimate

_LEFT, _WIDTH, _LINE, _TOP = 230, 720, 30, 44
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.soft { fill: #59636e; font-size: 11px; }
.rule { stroke: #d1d9e0; }
.between { stroke: #0969da; stroke-width: 3; stroke-linecap: round; }
.mean { fill: #0969da; }
.run { fill: #59636e; fill-opacity: .55; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .soft { fill: #9198a1; } .rule { stroke: #3d444d; }
  .between { stroke: #4493f8; } .mean { fill: #4493f8; } .run { fill: #9198a1; }
}
"""


def markdown(table: Table) -> Iterator[str]:
    """A grid's table, line by line."""
    first = table.rows[0]
    columns = dict(_columns(table))
    yield f"| cell | runs | {' | '.join(columns)} |"
    yield f"|---|{'---:|' * (len(columns) + 1)}"
    for row in table.rows:
        texts = [
            "" if text is None else text for text in (of(row, first) for of in columns.values())
        ]
        yield f"| {row.cell.label} | {len(row.runs)} of {row.asked} | {' | '.join(texts)} |"
    yield ""
    yield _below(table)


def _columns(table: Table) -> Iterator[tuple[str, Callable[[Row, Row], str | None]]]:
    yield "before", _alone(lambda run: run.before)
    yield "after", lambda row, _: interval_text(row.mean(after))
    yield "against the first", _against(table, after)
    yield "greedy before", _alone(lambda run: run.greedy_before)
    yield "greedy after", lambda row, _: interval_text(row.mean(_greedy_after))
    yield "against the first, greedy", _against(table, _greedy_after)
    yield (
        "below half",
        lambda row, _: str(sum(_greedy_after(run) < 0.5 for run in row.runs.values())),
    )
    yield "training", lambda row, _: interval_text(row.mean(lambda run: run.training))
    yield "chunks", lambda row, _: _plain(row, lambda run: run.chunks)
    yield "spike", lambda row, _: _plain(row, lambda run: run.peak)
    yield "masked", _alone(lambda run: run.masked)
    yield "clamped", _alone(lambda run: run.clamped)
    yield "clipped", _alone(lambda run: run.clipped)
    if any(run.age is not None for row in table.rows for run in row.runs.values()):
        yield "masked chunks", _of_those(lambda run: run.masked_chunks)
        yield "clamped chunks", _of_those(lambda run: run.clamped_chunks)
        yield "age", lambda row, _: _plain(row, lambda run: run.age)


def _alone(of: Callable[[Numbers], float | None]) -> Callable[[Row, Row], str]:
    """The mean without its interval."""
    return lambda row, _: interval_text(row.mean(of), alone=True)


def _of_those(of: Callable[[Numbers], float | None]) -> Callable[[Row, Row], str]:
    """As `_alone`, with the number of runs where not all of the row's have stored it."""

    def text(row: Row, _: Row) -> str:
        n = len(row.values(of))
        mean = interval_text(row.mean(of), alone=True)
        return mean if n in (0, len(row.runs)) else f"{mean} ({counted(n, 'run')})"

    return text


def _against(
    table: Table, of: Callable[[Numbers], float | None]
) -> Callable[[Row, Row], str | None]:
    corrected = p_values(table, of)

    def text(row: Row, first: Row) -> str | None:
        if row is first:
            return None
        change = change_text(row.change(first, of))
        known = corrected.get(row.cell.label)
        return change if known is None else f"{change}, p {known[1]:.2g}"

    return text


def _greedy_after(run: Numbers) -> float:
    return run.greedy_after


def _plain(row: Row, of: Callable[[Numbers], float | None]) -> str:
    """The median over runs."""
    found = [value for value in row.values(of).values() if not isnan(value)]
    return f"{median(found):.1f}" if found else "-"


def _below(table: Table) -> str:
    runs = [run for row in table.rows for run in row.runs.values()]
    broken = sum(run.broken for run in runs)
    n = f"{table.rollouts:,}" if table.rollouts is not None else "no"
    return (
        f"{len(runs)} runs, all but controls of {n} rollouts each (counted in the stored runs, "
        f"step by step); {broken} broken episodes."
    )


def interval_text(found: Estimate | None, *, alone: bool = False) -> str:
    """``31.2% (24.0 to 38.4)``."""
    if found is None:
        return "-"
    text = f"{100 * found.mean:.1f}%"
    if alone or found.low is None or found.high is None:
        return text
    return f"{text} ({100 * found.low:.1f} to {100 * found.high:.1f})"


def change_text(found: Estimate | None) -> str:
    """In percentage points."""
    if found is None:
        return "-"
    text = f"{100 * found.mean:+.1f}"
    if found.low is None or found.high is None:
        return text
    return f"{text} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def after(run: Numbers) -> float:
    """What is drawn."""
    return run.after


def picture(table: Table) -> str:
    """Success after training: the mean of each cell, its interval, and every run."""
    rows = [row for row in table.rows if row.runs]
    top = _most(rows)
    height = _TOP + _LINE * len(rows) + 34
    label = f"{table.plan.title}: success after training"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
            f'aria-label="{escape(label)}">',
            f"<style>{_STYLE}</style>",
            f'<text x="0" y="16">{escape(label)}</text>',
            '<text class="soft" x="0" y="33">bar: 95% interval of the mean over seeds; '
            "large dot: mean; small dots: seeds</text>",
            *_axis(top, height),
            *(line for number, row in enumerate(rows) for line in _drawn(row, number, top)),
            "</svg>\n",
        ]
    )


def _most(rows: Sequence[Row]) -> float:
    """Where the axis ends: a round number, at most 1."""
    found = [row.mean(after) for row in rows]
    highest = max(
        [0.05]
        + [each.high or each.mean for each in found if each is not None]
        + [run.after for row in rows for run in row.runs.values()]
    )
    return next((top for top in (0.1, 0.2, 0.4, 0.6, 0.8) if highest <= top), 1.0)


def _x(value: float, top: float) -> float:
    return round(_LEFT + (_WIDTH - _LEFT - 30) * value / top, 1)


def _axis(top: float, height: int) -> Iterator[str]:
    for i in range(5):
        value = top * i / 4
        x = _x(value, top)
        yield f'<line class="rule" x1="{x}" x2="{x}" y1="{_TOP}" y2="{height - 24}"/>'
        yield f'<text class="soft" x="{x}" y="{height - 8}" text-anchor="middle">{value:.0%}</text>'


def _drawn(row: Row, number: int, top: float) -> Iterator[str]:
    y = _TOP + _LINE * number + _LINE // 2
    found = row.mean(after)
    assert found is not None
    yield f'<text x="0" y="{y + 5}">{escape(row.cell.label)}</text>'
    if found.low is not None and found.high is not None:
        ends = f'x1="{_x(found.low, top)}" x2="{_x(found.high, top)}"'
        yield f'<line class="between" {ends} y1="{y}" y2="{y}"/>'
    for run in row.runs.values():
        yield f'<circle class="run" cx="{_x(run.after, top)}" cy="{y + 7}" r="2.5"/>'
    yield f'<circle class="mean" cx="{_x(found.mean, top)}" cy="{y}" r="5"/>'
