"""``report.html`` of a grid: one file with curves, intervals, and the runs behind every number."""

import os
from collections.abc import Iterator, Sequence
from html import escape
from urllib.parse import quote

from ale_ablate.comparing import Comparison, Measure, Row
from ale_ablate.curves import charts
from ale_ablate.intervals import Estimate
from ale_ablate.measuring import Measured
from ale_ablate.tables import captions, pairs, said, said_change
from ale_charts import document, draw

_STYLE = """
.charts { grid-template-columns: repeat(auto-fill, minmax(min(30rem, 100%), 1fr)); }
.plot { height: 14rem; }
td.cell { min-width: 12rem; }
.rate { width: 5rem; }
td.cell i { display: inline-block; width: .7em; height: .7em; border-radius: .2em;
  margin-right: .45em; background: currentColor; }
td.cell span { color: var(--ink); }
td .said { display: inline-block; min-width: 10rem; }
.zero { position: absolute; top: -.25rem; bottom: -.25rem; width: 1px; background: var(--soft); }
.captions { font-size: .875rem; color: var(--soft); max-width: 60rem; padding-left: 1.1rem; }
.scroll.all { max-height: none; }
@media (max-width: 34rem) { td.cell { min-width: 8rem; } .rate { display: none; } }
"""
_COLOURS = 8
_TONES = {"completed": "good", "unfinished": "warn", "missing": "bad", "damaged": "bad"}


def page(comparison: Comparison) -> Iterator[str]:
    """The file, piece by piece."""
    return document(
        title=comparison.grid.name,
        body=_body(comparison),
        skip=("runs", "to the runs"),
        style=_STYLE,
    )


def _body(comparison: Comparison) -> Iterator[str]:
    grid = comparison.grid
    done, n = comparison.completed, len(comparison.runs)
    tone = "good" if done == n else "warn"
    yield f"<header><h1>{escape(grid.name)}</h1>"
    yield f'<p class="sub"><span class="badge {tone}">{done} of {n} runs completed</span>'
    yield f" · {len(grid.cells)} cells × {len(grid.seeds)} seeds · begun {escape(grid.created)}</p>"
    yield "</header><main>"
    yield from _results(comparison)
    if len(comparison.rows) > 1:
        yield from _differences(comparison)
    drawn = charts(comparison)
    if drawn:
        yield '<section id="curves"><h2>Over training</h2><div class="charts">'
        yield from map(draw, drawn)
        yield "</div></section>"
    yield from _runs(comparison)
    yield from _about(comparison)
    yield "</main>"


def _results(comparison: Comparison) -> Iterator[str]:
    yield '<section id="cells"><h2>Cells</h2>'
    yield from _table_head(["cell"], ["runs", *(m.title for m in comparison.measures)])
    for row in comparison.rows:
        yield f"<tr>{_name(row)}{_cell(row.completed, f'{row.completed} of {len(row.runs)}')}"
        for measure in comparison.measures:
            found = row.means[measure.key]
            bar = _bar(found, 0.0, 1.0) if measure.share else ""
            text = escape(said(measure, found, row.completed))
            yield _cell(None if found is None else found.mean, _beside(bar, text))
        yield "</tr>"
    yield '</tbody></table></div><ul class="captions">'
    yield from (f"<li>{escape(line.removeprefix('- '))}</li>" for line in captions(comparison))
    yield "</ul></section>"


def _differences(comparison: Comparison) -> Iterator[str]:
    first = escape(comparison.rows[0].cell.name)
    yield f'<section id="differences"><h2>Differences to {first}</h2>'
    yield '<p class="note">Seed by seed, over the seeds that both cells have; success in '
    yield "percentage points. The line in a bar is no difference.</p>"
    yield from _table_head(["cell"], ["pairs", *(m.title for m in comparison.measures)])
    for row in comparison.rows[1:]:
        n = pairs(comparison, row)
        yield f"<tr>{_name(row)}{_cell(n, str(n))}"
        for measure in comparison.measures:
            yield _change(comparison, measure, row, n)
        yield "</tr>"
    yield "</tbody></table></div></section>"


def _change(comparison: Comparison, measure: Measure, row: Row, n: int) -> str:
    found = row.differences[measure.key]
    text = escape(said_change(measure, found, n))
    bar = ""
    if measure.share:
        reach = _reach([each.differences[measure.key] for each in comparison.rows[1:]])
        bar = _bar(found, -reach, reach, zero=True)
    return _cell(None if found is None else found.mean, _beside(bar, text))


def _beside(bar: str, text: str) -> str:
    """Bars of a column stand below each other, however long the words are."""
    return f'{bar}<span class="said">{text}</span>' if bar else text


def _reach(found: Sequence[Estimate | None]) -> float:
    """How far the bars of a column go to either side."""
    ends = [
        abs(value)
        for each in found
        if each is not None
        for value in (each.mean, each.low, each.high)
        if value is not None
    ]
    return max([0.05, *ends])


def _bar(found: Estimate | None, least: float, most: float, *, zero: bool = False) -> str:
    if found is None:
        return ""

    def at(value: float) -> float:
        return 100 * (value - least) / (most - least)

    parts = ['<span class="rate" aria-hidden="true">']
    if zero:
        parts.append(f'<span class="zero" style="left:{at(0.0):.1f}%"></span>')
    if found.low is not None and found.high is not None:
        left, right = at(found.low), at(found.high)
        width = f"left:{left:.1f}%;width:{right - left:.1f}%"
        parts.append(f'<span class="between" style="{width}"></span>')
    parts.append(f'<span class="at" style="left:{at(found.mean):.1f}%"></span></span>')
    return "".join(parts)


def _runs(comparison: Comparison) -> Iterator[str]:
    yield '<section id="runs"><h2>Runs</h2>'
    yield '<p class="note">Each number above is made of these, and each of these of the episodes '
    yield "in its directory.</p>"
    titles = [measure.title for measure in comparison.measures]
    yield from _table_head(["cell", "seed", "state"], [*titles, "broken"], ["run"])
    for row in comparison.rows:
        for run in row.runs:
            yield from _run(comparison, row, run)
    yield "</tbody></table></div></section>"


def _run(comparison: Comparison, row: Row, run: Measured) -> Iterator[str]:
    yield f'<tr>{_name(row)}<td data-value="{run.slot.seed}">{run.slot.seed}</td>'
    yield f'<td><span class="badge {_TONES[run.state]}">{run.state}</span></td>'
    for measure in comparison.measures:
        value = row.values[measure.key].get(run.slot.seed)
        found = None if value is None else Estimate(n=1, mean=value)
        yield _cell(value, escape(said(measure, found, 1)))
    yield f"{_cell(run.broken, str(run.broken))}<td>{_links(comparison, run)}</td></tr>"


def _links(comparison: Comparison, run: Measured) -> str:
    if run.path is None:
        return "-"
    where = os.path.relpath(run.path, comparison.grid.path)
    made = f'<a href="{quote(where)}/">{escape(run.path.name)}</a>'
    if (run.path / "report.html").exists():
        made += f' <a href="{quote(where)}/report.html">report</a>'
    return made


def _about(comparison: Comparison) -> Iterator[str]:
    grid = comparison.grid
    facts = {
        "config": grid.source,
        "laid over it": ", ".join(grid.overrides) or "nothing",
        "seeds": ", ".join(map(str, grid.seeds)),
        "folder": str(grid.path),
        "versions": ", ".join(f"{name} {version}" for name, version in grid.versions.items()),
    }
    yield '<section id="about"><h2>What the grid was</h2><dl class="facts">'
    for name, value in facts.items():
        yield f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
    yield "</dl><p class='note'>The whole config of each cell: "
    yield ", ".join(
        f'<a href="{quote(os.path.relpath(grid.config(cell), grid.path))}">{escape(cell.name)}</a>'
        for cell in grid.cells
    )
    yield "</p></section>"


def _table_head(
    left: Sequence[str], right: Sequence[str], last: Sequence[str] = ()
) -> Iterator[str]:
    yield '<div class="scroll all" tabindex="0"><table class="sortable"><thead><tr>'
    yield from (f'<th scope="col">{escape(name)}</th>' for name in left)
    yield from (f'<th scope="col" class="num">{escape(name)}</th>' for name in right)
    yield from (f'<th scope="col">{escape(name)}</th>' for name in last)
    yield "</tr></thead><tbody>"


def _name(row: Row) -> str:
    colour = (row.number - 1) % _COLOURS
    name = escape(row.cell.name)
    return f'<td class="cell c{colour}" data-value="{row.number}"><i></i><span>{name}</span></td>'


def _cell(value: float | None, markup: str) -> str:
    known = -1 if value is None else value
    return f'<td class="num" data-value="{known}">{markup}</td>'
