"""Words and numbers of the page about a run as a whole, made of what `gathering` has counted."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ale.runs import PARTS, model_name
from ale.text import counted, number, seconds
from ale_look.inspect.acting import acting_lines
from ale_look.inspect.kinds import kind_name
from ale_look.inspect.overview import lost_episodes
from ale_look.inspect.report.gathering import Facts, Sums

_STAGES = 8
_ALERTS = 5


class Tile(NamedTuple):
    """A number at the top of the page."""

    label: str
    value: str
    note: str


def header(facts: Facts) -> dict[str, Any]:
    """The top of the page: name, outcome, warnings, parts and tiles."""
    manifest = facts.manifest
    outcome = manifest.get("outcome") or {}
    ended = facts.state == outcome.get("outcome")
    early = {"drained": "warn", "halted": "warn"}
    tones = {"completed": "good", "running": "", "interrupted": "", **early}
    config: Mapping[str, Any] = manifest.get("config", {})
    return {
        "run_id": str(manifest["run_id"]),
        "outcome": {
            "name": "paused" if facts.paused else facts.state,
            "tone": tones.get(facts.state, "bad"),
            "time": seconds(float(outcome["seconds"])) if ended and "seconds" in outcome else "",
            "started": str(manifest.get("created", "")),
        },
        "warnings": [text[:1].upper() + text[1:] for text in _warnings(facts)],
        "parts": [(part, _part_name(config, part)) for part in PARTS if part in config],
        "tiles": list(_tiles(facts)),
    }


def _warnings(facts: Facts) -> Iterator[str]:
    if facts.ended_because and facts.state != "running":
        yield f"{facts.state}: {facts.ended_because}"
    yield from (f"left out: {text}" for text in facts.left_out[:_ALERTS])
    if (more := len(facts.left_out) - _ALERTS) > 0:
        yield f"{more:,} more damaged lines are left out"
    if lost := lost_episodes(facts.missing):
        yield f"missing: {lost}"
    earlier = len(facts.alerts) - _ALERTS
    yield from (f"alert in {text}" for text in facts.alerts[-_ALERTS:])
    if earlier > 0:
        yield f"{earlier:,} earlier alerts"
    if facts.warning:
        yield facts.warning


def _part_name(config: Mapping[str, Any], part: str) -> str:
    """The component's name; of the model also its own."""
    name = model_name(config) if part == "llm" else None
    return " ".join(filter(None, [str(config[part].get("type", "")).rpartition("/")[2], name]))


def _failures(sums: Sums) -> Iterator[str]:
    """Episodes that broke, and those whose sandbox or grading came to a limit."""
    yield f"{sums.broken:,} broken" if sums.broken else "none broken"
    if sums.timed_out:
        yield f"{sums.timed_out:,} ran out of time in grading"
    if sums.damaged:
        yield f"in {sums.damaged:,} the agent damaged its sandbox"


def _tiles(facts: Facts) -> Iterator[Tile]:
    own, steps = facts.total("train"), facts.steps("train")
    trained = len(facts.steps()) > 1
    for kind in facts.evaluations():
        steps_of = facts.steps(kind)
        first, last = (facts.by_step[kind, step] for step in (steps_of[0], steps_of[-1]))
        was = f"{_percent(first)} at step {steps_of[0]}; now " if len(steps_of) > 1 else ""
        yield _rate_tile(f"success {kind_name(kind, facts.names)}, step {steps_of[-1]}", last, was)
        several = facts.repeats(kind, steps_of[-1])
        if several is not None:
            label = f"pass@{several.k} {kind_name(kind, facts.names)}, step {steps_of[-1]}"
            majority = f"in {100 * several.majority:.1f}% more than half of the samples succeed"
            yield Tile(label, f"{100 * several.pass_at_k:.1f}%", majority)
    if trained and steps:
        yield _rate_tile(f"success in step {steps[-1]}", facts.by_step["train", steps[-1]])
    yield _rate_tile("success over all steps" if trained else "success", own)
    mean = own.mean_reward()
    if mean is not None:
        yield Tile("mean reward", number(mean[0]), f"{number(mean[1])} to {number(mean[2])}")
    if facts.progress is not None:
        yield Tile("reward rose", facts.progress.value, facts.progress.reason)
    every = facts.total()
    broken = "; ".join(_failures(every))
    of_training = {s for kind, s in facts.by_step if not kind.startswith("evaluation")}
    over = f"over {counted(len(of_training), 'step')}; " if trained and of_training else ""
    yield Tile("episodes", f"{every.tries:,}", over + broken)
    if every.tokens:
        yield Tile("tokens generated", _short(every.tokens), f"in {counted(every.sampled, 'turn')}")


def _short(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{number:,.0f}"


def _rate_tile(label: str, sums: Sums, before: str = "") -> Tile:
    found = sums.success()
    if found is None:
        return Tile(label, "-", "none graded")
    _, low, high = found
    interval = f"{sums.succeeded:,} of {sums.n:,}; {100 * low:.1f} to {100 * high:.1f}"
    return Tile(label, _percent(sums), before + interval)


def _percent(sums: Sums) -> str:
    return f"{100 * sums.succeeded / sums.n:.1f}%" if sums.n else "-"


def stages(facts: Facts) -> list[dict[str, Any]]:
    """Time by stage, most first."""
    spent = facts.total().seconds
    total = sum(spent.values())
    if total <= 0:
        return []
    return [
        {"name": stage, "time": seconds(value), "percent": 100 * value / total}
        for stage, value in spent.most_common(_STAGES)
    ]


def about(facts: Facts) -> Iterator[tuple[str, str]]:
    """Facts about the run, by name."""
    for key in ("seed", "n_tasks", "host", "sandbox"):
        if key in facts.manifest:
            yield key, _plain(facts.manifest[key])
    if facts.adapted:
        yield "concurrency", facts.adapted
    steps: dict[int, dict[str, float]] = {}
    for name, values in facts.metrics.items():
        for step, value in values.items():
            steps.setdefault(step, {})[name] = value
    for line in acting_lines(facts.manifest, steps.values()):
        yield "objective", line
    for reason, count in facts.stops.most_common():
        yield f"agent ended: {reason}", f"{count:,}"


def documents(facts: Facts) -> Iterator[tuple[str, str]]:
    """Longer texts, collapsed: title and content."""
    for title, key in (("Config", "config"), ("Versions", "versions")):
        value = facts.manifest.get(key, {})
        yield title, json.dumps(value, indent=2, ensure_ascii=False)
    if facts.notices:
        yield f"Events ({len(facts.notices)})", "\n".join(map(_plain, facts.notices))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
