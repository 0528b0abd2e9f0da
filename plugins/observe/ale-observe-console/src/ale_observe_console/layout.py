"""Progress as text and as rich renderables. Pure functions; times in seconds."""

from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len, chop_cells
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ale.text import counted, sampling_name
from ale.types import EvaluationFinished
from ale_observe_console.progress import FinishedStep, Progress

LEAST_BAR, WIDEST_BAR = 8, 40
ELLIPSIS = "~"
_NAME = 60
"""Columns of an episode's id in a plain line."""


def duration(seconds: float) -> str:
    """`seconds` in two units: ``4s``, ``3m12s``, ``2h05m``, ``3d04h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole // 60 % 60:02}m"
    return f"{whole // 86400}d{whole // 3600 % 24:02}h"


def speed(per_s: float) -> str:
    """Episodes per second, minute or hour: the first that gives a number above 1."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if per_s * seconds >= 1 or unit == "h":
            break
    return f"{per_s * seconds:.{0 if per_s * seconds >= 100 else 1}f}/{unit}"


def shorten(text: str, width: int) -> str:
    """`text` in at most `width` columns, without its middle: numbers at its end stay.

    Unprintable characters (a task's name may have any) become ``?``.
    """
    text = "".join(c if c.isprintable() else "?" for c in text)
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    tail = (width - 1) // 2
    head = width - 1 - tail
    last = chop_cells(text[::-1], tail)[0][::-1] if tail else ""
    first = chop_cells(text, head)[0] if head else ""
    return shorten_to(first, head) + ELLIPSIS + shorten_to(last, tail)


def shorten_to(text: str, width: int) -> str:
    """`text`, or nothing if a single wide character does not fit."""
    return text if cell_len(text) <= width else ""


def _fit(parts: Sequence[Text], width: int) -> Text:
    """The parts that fit, in order; the first one always."""
    line = parts[0].copy()
    for part in parts[1:]:
        if line.cell_len + 2 + part.cell_len <= width:
            line.append("  ").append_text(part)
    return line


_text = Text.assemble


def _counts(progress: Progress) -> str:
    total = progress.n_planned
    return f"{progress.n_done}" if total is None else f"{progress.n_done}/{total}"


def _success(progress: Progress) -> Text:
    if not progress.n_graded:
        return _text(("success none graded", "dim"))
    percent = f"{100 * progress.n_succeeded / progress.n_graded:.0f}%"
    return _text(("success ", "dim"), (percent, "bold"), (f" of {progress.n_graded}", "dim"))


def _broken(progress: Progress) -> Text:
    return _text(("broken ", "dim"), (f"{progress.n_broken}", "red" if progress.n_broken else ""))


def _odd(progress: Progress) -> list[Text]:
    """Graded episodes that ended for a limit or for damage, where there are any."""
    counts = (("timed out", progress.n_timed_out), ("damaged", progress.n_damaged))
    return [_text((f"{name} ", "dim"), (f"{n}", "yellow")) for name, n in counts if n]


def _times(progress: Progress, now: float) -> list[Text]:
    """Time left, rate and elapsed time, most important first."""
    parts = [_text(("paused", "bold yellow"))] if progress.paused else []
    left, rate = progress.left_s(now), progress.per_s(now)
    if left is not None:
        parts.append(_text((duration(left), "bold"), (" left", "dim")))
    if rate is not None:
        parts.append(_text((speed(rate), "")))
    parts.append(_text((duration(now - progress.started_at), ""), (" so far", "dim")))
    return parts


def _head(progress: Progress, now: float, width: int) -> RenderableType:
    counts, total = _text((_counts(progress), "bold")), progress.n_planned
    done = progress.n_done
    if total is None and progress.steps is not None:
        done, total = progress.steps
        counts.append(f" episodes, {counted(done, 'step')} of {total}")
    if not total:
        return _fit([counts, *_times(progress, now)], width)
    counts.append(f" {100 * done // total}%")
    line = _fit([counts, *_times(progress, now)], width)
    bar = min(WIDEST_BAR, width - line.cell_len - 1)
    if bar < LEAST_BAR:
        return line
    row = Table.grid(padding=0)
    row.add_row(
        counts,
        " ",
        ProgressBar(total=total, completed=done, width=bar),
        line[counts.cell_len :],
    )
    return row


def _step(progress: Progress, width: int) -> list[Text]:
    if progress.step is None:
        return []
    metrics = [
        _text((f"{name} ", "dim"), (value, "")) for name, value in _metrics(progress.step.metrics)
    ]
    title = _text(("step ", "dim"), (f"{progress.step.step}", "bold"), (_of(progress), "dim"))
    return [_fit([title, *metrics], width)]


_FIRST = {
    "mean_reward": "reward",
    "success": "success",
    "mean_return": "return",
    "loss": "loss",
    "kl_rollout": "kl",
    "kl_sampler": "kl",
    "kl": "kl",
    "tokens_trained": "tokens",
    "broken": "broken",
    "groups_short": "short groups",
}
"""Metrics that are shown first, and how they are called here. That of the KL to the policy that
sampled depends on the trainer."""
_IF_ANY = ("groups_short",)
"""Metrics that are not shown if they are 0."""


def _metrics(metrics: Mapping[str, float], *, others: bool = True) -> list[tuple[str, str]]:
    """Names and values, the most important first."""
    metrics = {k: value for k, value in metrics.items() if value or k not in _IF_ANY}
    known = [(short, metrics[name]) for name, short in _FIRST.items() if name in metrics]
    more = [(name, value) for name, value in metrics.items() if name not in _FIRST and others]
    return [(name, _value(name, value)) for name, value in (*known, *more)]


def _value(name: str, value: float) -> str:
    return f"{100 * value:.0f}%" if name == "success" else f"{value:.4g}"


def _of(progress: Progress) -> str:
    """`` (3 of 14)``, after the 0-based number of the step that is done."""
    return "" if progress.steps is None else " ({} of {})".format(*progress.steps)


def step_line(progress: Progress, step: FinishedStep, now: float) -> str:
    """A plain line for a finished training step."""
    report = step.report
    planned = "" if progress.steps is None else f" ({report.step + 1} of {progress.steps[1]})"
    shown = _metrics(report.metrics, others=False) or _metrics(report.metrics)
    facts = [*(f"{name} {value}" for name, value in shown), duration(step.seconds)]
    left = progress.left_s(now)
    facts += [f"{duration(left)} left"] if left else []
    return f"step {report.step}{planned}: {', '.join(facts)}"


def _idle(progress: Progress) -> list[Text]:
    if not progress.n_idle_steps:
        return []
    return [_text((idle_steps(progress), "yellow"))]


def idle_steps(progress: Progress) -> str:
    """How many training steps made no update."""
    if progress.n_idle_steps == progress.n_steps:
        return "no update in any step: nothing was learned"
    return f"no update in {progress.n_idle_steps} of {counted(progress.n_steps, 'step')}"


def _evaluations(progress: Progress) -> list[tuple[str, list[EvaluationFinished]]]:
    """The first evaluation and the last one of each temperature, with its name if it needs one."""
    named = {*progress.evaluations} != {None}
    return [
        (f"{sampling_name(temperature)} " if named else "", events)
        for temperature, events in progress.evaluations.items()
    ]


def _evaluation_parts(name: str, events: Sequence[EvaluationFinished]) -> list[Text]:
    return [
        _evaluation(event, name if event is events[0] else "", is_last=event is events[-1])
        for event in events
    ]


def _evaluation(event: EvaluationFinished, name: str, *, is_last: bool) -> Text:
    percent = (
        f"{100 * event.n_succeeded / event.n_graded:.0f}%" if event.n_graded else "none graded"
    )
    steps = f" of {event.n_graded} after {counted(event.step, 'step')}"
    several = _of_several(event) if is_last else ""
    return _text((name, "dim"), (percent, "bold"), (steps + several, "dim"))


def _evaluation_lines(progress: Progress, width: int) -> list[Text]:
    """One line if all fits, else one for each temperature, without the first if both don't fit."""
    evaluated, title = _evaluations(progress), "evaluation"
    parts = [part for each in evaluated for part in _evaluation_parts(*each)]
    whole = Text("  ").join([_text((title, "dim")), *parts])
    if whole.cell_len <= width:
        return [whole] if evaluated else []
    lines = []
    for n, (name, events) in enumerate(evaluated):
        lead = _text((title if n == 0 else " " * len(title), "dim"))
        both = Text("  ").join([lead, *_evaluation_parts(name, events)])
        alone = _fit([lead, *_evaluation_parts(name, events[-1:])], width)
        lines.append(both if both.cell_len <= width else alone)
    return lines


def _of_several(event: EvaluationFinished) -> str:
    """`` (pass@4 71%, majority 40%)``; empty with one sample of each task."""
    if event.pass_at_k is None or event.majority is None:
        return ""
    return f" (pass@{event.k} {100 * event.pass_at_k:.0f}%, majority {100 * event.majority:.0f}%)"


def _running(progress: Progress, now: float, n: int, width: int) -> list[Text]:
    lines = []
    for episode in progress.longest(n):
        lead = f"  {duration(now - episode.since):>6} {episode.stage:<8} "
        name = shorten(episode.episode_id, width - len(lead))
        lines.append(_text((lead, "dim"), (name, "")))
    return lines


def frame(progress: Progress, now: float, *, name_running: int, width: int) -> list[RenderableType]:
    """The lines that are redrawn in place, each at most `width` columns wide."""
    running = _text((f"{len(progress.running)}", ""), (" running", "dim"))
    return [
        _head(progress, now, width),
        _fit([_success(progress), _broken(progress), *_odd(progress), running], width),
        *_step(progress, width),
        *_idle(progress),
        *_evaluation_lines(progress, width),
        *_running(progress, now, name_running, width),
    ]


def stack(lines: Iterable[RenderableType]) -> RenderableType:
    """Lines below each other; one that is too long is cut, never wrapped."""
    made = []
    for line in lines:
        if isinstance(line, Text):
            line.no_wrap, line.overflow = True, "crop"
        made.append(line)
    return Group(*made)


def _sentence(parts: Iterable[Text]) -> str:
    return ", ".join(part.plain for part in parts)


def opening(progress: Progress) -> str:
    """The first plain line."""
    started = progress.started
    steps = progress.steps
    planned = "" if steps is None else f" in {counted(steps[1], 'step')}"
    total = "as many episodes as it takes"
    if started.n_episodes is not None:
        total = counted(started.n_episodes, "episode")
    before = f", {started.n_done} done before" if started.n_done else ""
    auto = started.config.get("run", {}).get("concurrency") == "auto"
    concurrent = f"{started.concurrency} concurrent{' at first' if auto else ''}"
    return f"ale run {started.run_id}: {total}{planned}, {concurrent}{before}"


def update(progress: Progress, now: float) -> str:
    """A plain line during the run. Not shortened: a log has no width."""
    name = "".join(
        f", longest {duration(now - e.since)} in {e.stage}: {shorten(e.episode_id, _NAME)}"
        for e in progress.longest(1)
    )
    facts = [_success(progress), _broken(progress), *_odd(progress), *_times(progress, now)]
    step = "" if progress.step is None else f", step {progress.step.step}{_of(progress)}"
    done = f"{_counts(progress)} episodes done, {_sentence(facts)}{step}"
    return f"{done}, {len(progress.running)} running{name}"


def closing(progress: Progress, now: float) -> str:
    """The last line. The run's own summary follows on standard output."""
    outcome = "ended" if progress.finished is None else progress.finished.outcome
    ended = progress.finished
    spent = duration(now - progress.started_at if ended is None else ended.seconds)
    evaluated = [part for each in _evaluations(progress) for part in _evaluation_parts(*each)]
    evaluated[:0] = [_text(("evaluation", ""))] if evaluated else []
    facts = _sentence([_success(progress), _broken(progress), *_odd(progress), *evaluated])
    idle = f", {idle_steps(progress)}" if progress.n_idle_steps else ""
    total = progress.n_planned or progress.n_done
    noun = "episode" if total == 1 else "episodes"
    return f"{outcome} after {spent}: {_counts(progress)} {noun}, {facts}{idle}"
