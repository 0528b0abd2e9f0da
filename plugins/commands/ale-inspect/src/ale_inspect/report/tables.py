"""The table of tasks, and that of why episodes broke."""

from collections.abc import Iterator, Mapping
from html import escape

from ale.text import wilson
from ale_charts import sparkline
from ale_inspect.report.gathering import Facts, Kind, Sums

KINDS: Mapping[Kind, str] = {
    "train": "training",
    "evaluation": "held out",
    "started": "from an expert's place",
    "shown": "demonstration",
}
"""How a reader is told of them."""
_ROWS = 1000
_CAUSES = 20
_STRETCHES = 8
"""Points of a task's small curve."""


def tasks(facts: Facts) -> Iterator[str]:
    """A row per task, to be sorted and filtered."""
    keys = sorted(facts.by_task, key=lambda key: (list(KINDS).index(key[0]), key[1]))
    trained = len({step for _, step in facts.by_step}) > 1
    yield '<section id="tasks"><h2>Tasks</h2><form class="filter" hidden><label>Filter <input '
    yield 'type="search" id="find-task" placeholder="task" autocomplete="off"></label></form>'
    if len(keys) > _ROWS:
        yield f'<p class="note">{_ROWS:,} of {len(keys):,} are here, by name.</p>'
    yield '<div class="scroll" tabindex="0"><table class="sortable"><thead><tr>'
    yield '<th scope="col">task</th><th scope="col">success</th>'
    if trained:
        yield '<th scope="col" data-plain>over steps</th>'
    for name in ("graded", "mean reward", "turns", "broken"):
        yield f'<th scope="col" class="num">{name}</th>'
    yield "</tr></thead><tbody>"
    for key in keys[:_ROWS]:
        yield from _row(facts, key, trained)
    yield "</tbody></table></div></section>"


def _row(facts: Facts, key: tuple[Kind, str], trained: bool) -> Iterator[str]:
    kind, task_id = key
    sums = facts.by_task[key]
    goal = escape(facts.goals.get(task_id, ""))
    badge = "" if kind == "train" else f' <span class="badge">{KINDS[kind]}</span>'
    yield f'<tr data-task="{escape(task_id)}"><td><a href="#episodes" class="pick" title="{goal}">'
    yield f"{escape(task_id)}</a>{badge}</td>{_rate(sums)}"
    if trained:
        yield f"<td>{sparkline(_over_steps(facts, key))}</td>"
    mean = sums.reward / sums.n if sums.n else None
    turns = sums.turns / sums.n if sums.n else None
    yield _cell(sums.n, f"{sums.n:,}")
    yield _cell(mean, "-" if mean is None else f"{mean:.3f}")
    yield _cell(turns, "-" if turns is None else f"{turns:.1f}")
    yield f"{_cell(sums.broken, str(sums.broken))}</tr>"


def _cell(value: float | None, text: str) -> str:
    return f'<td class="num" data-value="{-1 if value is None else value}">{text}</td>'


def _rate(sums: Sums) -> str:
    if not sums.n:
        return '<td data-value="-1">-</td>'
    share = sums.succeeded / sums.n
    low, high = wilson(sums.succeeded, sums.n)
    style = f"left:{100 * low:.1f}%;right:{100 * (1 - high):.1f}%"
    return (
        f'<td data-value="{share:.4f}"><span class="rate" title="95% interval {100 * low:.0f} to '
        f'{100 * high:.0f}%"><i class="between" style="{style}"></i>'
        f'<i class="at" style="left:{100 * share:.1f}%"></i></span> {100 * share:.0f}%</td>'
    )


def _over_steps(facts: Facts, key: tuple[Kind, str]) -> list[float]:
    steps = facts.task_steps.get(key, {})
    ordered = sorted(steps)
    size = -(-len(ordered) // _STRETCHES) or 1
    made = []
    for start in range(0, len(ordered), size):
        part = [steps[step] for step in ordered[start : start + size]]
        made.append(sum(won for won, _ in part) / sum(of for _, of in part))
    return made


def starts(facts: Facts) -> Iterator[str]:
    """Success by where rollouts began; nothing where all began at their task's own beginning."""
    tasks_with = {task_id for task_id, start in facts.by_start if start}
    keys = [key for key in sorted(facts.by_start) if key[0] in tasks_with]
    if not keys:
        return
    yield '<section id="starts"><h2>Where rollouts began</h2><p class="note">Over all steps.</p>'
    if len(keys) > _ROWS:
        yield f'<p class="note">{_ROWS:,} of {len(keys):,} are here, by task.</p>'
    yield '<div class="scroll" tabindex="0"><table class="sortable"><thead><tr>'
    yield '<th scope="col">task</th><th scope="col">start</th><th scope="col">success</th>'
    yield '<th scope="col" class="num">graded</th><th scope="col" class="num">broken</th>'
    yield "</tr></thead><tbody>"
    for task_id, start in keys[:_ROWS]:
        sums = facts.by_start[task_id, start]
        yield f"<tr><td>{escape(task_id)}</td><td>{escape(start or 'its own beginning')}</td>"
        yield f"{_rate(sums)}{_cell(sums.n, f'{sums.n:,}')}{_cell(sums.broken, str(sums.broken))}"
        yield "</tr>"
    yield "</tbody></table></div></section>"


def broken(facts: Facts) -> Iterator[str]:
    """Why episodes broke; nothing where none did."""
    rows = list(facts.causes.common(_CAUSES))
    if not rows:
        return
    yield '<section id="broken"><h2>Broken episodes</h2><p class="note">The infrastructure failed; '
    yield "they have no reward and nothing is learned from them.</p>"
    yield '<div class="scroll"><table><thead><tr><th class="num">times</th><th>because</th>'
    yield "<th>first in</th></tr></thead><tbody>"
    for count, said, first in rows:
        yield f'<tr><td class="num">{count:,}</td><td>{escape(said)}</td>'
        yield f"<td><code>{escape(first)}</code></td></tr>"
    if others := facts.causes.others(_CAUSES):
        yield f'<tr><td class="num">{others:,}</td><td>for other reasons</td><td></td></tr>'
    yield "</tbody></table></div></section>"
