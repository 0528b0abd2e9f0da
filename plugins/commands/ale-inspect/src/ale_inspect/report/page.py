"""The file itself: sections in order, each made of what was gathered."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any

from ale.runs import RunReader
from ale.text import seconds, wilson
from ale_charts import Chart, document, draw
from ale_inspect.report.curves import constants, episode_charts, metric_charts
from ale_inspect.report.embedding import embedded
from ale_inspect.report.forks import forks
from ale_inspect.report.gathering import Facts, Head, Sums
from ale_inspect.report.tables import KINDS, broken, starts, tasks

_PARTS = ("tasks", "sandbox", "llm", "agent", "chunker", "credit", "starts", "trainer")


def page(run: RunReader, facts: Facts, most: int, most_bytes: int) -> Iterator[str]:
    """The file, piece by piece."""
    return document(
        title=str(facts.manifest["run_id"]),
        body=_body(run, facts, most, most_bytes),
        skip=("episodes", "to the episodes"),
        style=_static("report.css"),
        script=_static("report.js"),
    )


def _body(run: RunReader, facts: Facts, most: int, most_bytes: int) -> Iterator[str]:
    yield f"<header><h1>{escape(str(facts.manifest['run_id']))}</h1>"
    yield from _header(facts)
    yield "</header><main>"
    yield from _curves(facts)
    yield from _times(facts)
    yield from tasks(facts)
    yield from starts(facts)
    yield from forks(facts)
    yield from broken(facts)
    yield from _episodes(run, facts, most, most_bytes)
    yield from _about(facts)
    yield "</main>"


def _static(name: str) -> str:
    return (files("ale_inspect.report") / "static" / name).read_text(encoding="utf-8")


def _header(facts: Facts) -> Iterator[str]:
    manifest = facts.manifest
    outcome = manifest.get("outcome") or {}
    said = str(outcome.get("outcome", "not ended"))
    when = escape(str(manifest.get("created", "")))
    took = f" after {seconds(float(outcome['seconds']))}" if "seconds" in outcome else ""
    yield f'<p class="sub"><span class="badge {_tone(said)}">{escape(said)}</span>{took}'
    yield f" · started {when}</p>" if when else "</p>"
    yield '<p class="picks">'
    config: Mapping[str, Any] = manifest.get("config", {})
    for part in _PARTS:
        if part in config:
            kind = str(config[part].get("type", "")).rpartition("/")[2]
            yield f"<span><small>{part}</small> {escape(kind)}</span>"
    yield '</p><div class="tiles">'
    yield from _tiles(facts)
    yield "</div>"


def _tone(outcome: str) -> str:
    return {"completed": "good", "not ended": "", "drained": "warn"}.get(outcome, "bad")


def _tiles(facts: Facts) -> Iterator[str]:
    own, steps = facts.total("train"), facts.steps("train")
    trained = len(facts.steps()) > 1
    if held_out := facts.steps("evaluation"):
        first, last = (facts.by_step["evaluation", step] for step in (held_out[0], held_out[-1]))
        was = f"{_percent(first)} at step {held_out[0]}; now " if len(held_out) > 1 else ""
        yield _rate_tile(f"success held out, step {held_out[-1]}", last, was)
    if trained and steps:
        yield _rate_tile(f"success in step {steps[-1]}", facts.by_step["train", steps[-1]])
    yield _rate_tile("success over all steps" if trained else "success", own)
    mean = own.mean_reward()
    if mean is not None:
        yield _tile("mean reward", f"{mean[0]:.3f}", f"{mean[1]:.3f} to {mean[2]:.3f}")
    every = facts.total()
    broken = f"{every.broken:,} broken" if every.broken else "none broken"
    over = f"over {len(facts.steps()):,} steps; " if trained else ""
    yield _tile("episodes", f"{every.tries:,}", over + broken)
    if every.tokens:
        yield _tile("tokens generated", _short(every.tokens), f"in {every.turns:,} turns")


def _short(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{number:,.0f}"


def _rate_tile(label: str, sums: Sums, before: str = "") -> str:
    if not sums.n:
        return _tile(label, "-", "none graded")
    low, high = wilson(sums.succeeded, sums.n)
    interval = f"{sums.succeeded:,} of {sums.n:,}; {100 * low:.1f} to {100 * high:.1f}"
    return _tile(label, _percent(sums), before + interval)


def _percent(sums: Sums) -> str:
    return f"{100 * sums.succeeded / sums.n:.1f}%" if sums.n else "-"


def _tile(label: str, value: str, note: str) -> str:
    said = f"<b>{escape(value)}</b><small>{escape(note)}</small>"
    return f"<div><small>{escape(label)}</small>{said}</div>"


def _curves(facts: Facts) -> Iterator[str]:
    """Nothing where there is only one step: a curve of one point says less than the tiles."""
    steps = {step for _, step in facts.by_step} | {s for m in facts.metrics.values() for s in m}
    if len(steps) < 2:
        return
    yield '<section id="curves"><h2>Over training steps</h2><div class="charts">'
    yield from map(draw, _drawable(episode_charts(facts)))
    yield "</div>"
    if any(facts.metrics.values()):
        yield '<h3>What the trainer reported</h3><div class="charts">'
        yield from map(draw, _drawable(metric_charts(facts)))
        yield "</div>"
        same = "".join(f"<span>{escape(name)} {value:g}</span>" for name, value in constants(facts))
        if same:
            yield f'<p class="key same"><b>The same in every step:</b>{same}</p>'
    yield "</section>"


def _drawable(charts: Iterator[Chart]) -> Iterator[Chart]:
    return (chart for chart in charts if chart.series)


def _times(facts: Facts) -> Iterator[str]:
    spent = facts.total().seconds
    total = sum(spent.values())
    if total <= 0:
        return
    yield '<section id="time"><h2>Where the time of the episodes went</h2><div class="bar">'
    shown = spent.most_common(8)
    for colour, (stage, value) in enumerate(shown):
        share = 100 * value / total
        yield f'<i class="c{colour}" style="width:{share:.2f}%" title="{escape(stage)}"></i>'
    yield '</div><p class="key">'
    for colour, (stage, value) in enumerate(shown):
        yield f'<span><i class="c{colour}"></i>{escape(stage)} {seconds(value)}'
        yield f" ({100 * value / total:.0f}%)</span>"
    yield "</p><p class='note'>Summed over episodes, which run side by side.</p></section>"


def _episodes(run: RunReader, facts: Facts, most: int, most_bytes: int) -> Iterator[str]:
    held = list(embedded(run, facts, most, most_bytes))
    yield '<section id="episodes"><h2>Episodes</h2>'
    if len(held) < len(facts.heads):
        yield f'<p class="note">{len(held):,} of {len(facts.heads):,} are here: of each task the '
        yield "last success and failure, the rest evenly over the steps, best and worst in turn. "
        yield "<code>ale show RUN EPISODE</code> shows any other.</p>"
    yield '<form class="filter" hidden><label>Filter <input type="search" id="find" '
    yield 'placeholder="task or episode" autocomplete="off"></label>'
    for name, label, options in (
        ("outcome", "Outcome", ("success", "failure", "broken")),
        ("kind", "Kind", sorted({KINDS[head.kind] for head, _ in held})),
    ):
        if len(options) > 1:
            choices = "".join(f"<option>{option}</option>" for option in options)
            yield f'<label>{label} <select id="{name}"><option value="">all</option>'
            yield f"{choices}</select></label>"
    yield '<output id="count"></output></form><noscript><p class="note">A browser that runs '
    yield 'scripts opens the episodes.</p></noscript><div id="list">'
    for number, (head, text) in enumerate(held):
        yield from _episode(number, head, text)
    yield "</div></section>"


def _episode(number: int, head: Head, text: str) -> Iterator[str]:
    outcome = "broken" if head.reward is None else "success" if head.reward == 1 else "failure"
    tone = {"success": "good", "failure": "bad", "broken": "warn"}[outcome]
    reward = "broken" if head.reward is None else f"{head.reward:.2f}"
    yield f'<details class="episode" id="e{number}" data-outcome="{outcome}" '
    yield f'data-kind="{KINDS[head.kind]}" data-task="{escape(head.task_id)}"><summary>'
    yield f'<span class="badge {tone}">{reward}</span> <b>{escape(head.id)}</b>'
    yield f" <small>step {head.step} · {head.turns} turns · {seconds(head.seconds)}"
    yield f"{'' if head.kind == 'train' else f' · {KINDS[head.kind]}'}</small></summary>"
    yield f'<div class="body"></div><script type="application/json">{text}</script></details>'


def _about(facts: Facts) -> Iterator[str]:
    manifest = facts.manifest
    yield '<section id="about"><h2>What the run was</h2><dl class="facts">'
    for key in ("seed", "n_tasks", "host", "sandbox"):
        if key in manifest:
            yield f"<dt>{escape(key)}</dt><dd>{escape(_plain(manifest[key]))}</dd>"
    for reason, count in facts.stops.most_common():
        yield f"<dt>agent ended: {escape(reason)}</dt><dd>{count:,}</dd>"
    yield "</dl>"
    yield from _unfolded("Config", manifest.get("config", {}))
    yield from _unfolded("Versions", manifest.get("versions", {}))
    if facts.told:
        lines = "\n".join(_plain(event) for event in facts.told)
        yield f"<details><summary>Beside the episodes ({len(facts.told)})</summary>"
        yield f"<pre>{escape(lines)}</pre></details>"
    yield "</section>"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _unfolded(title: str, value: Any) -> Iterator[str]:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    yield f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>"
