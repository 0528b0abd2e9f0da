"""Progress as text that fits a width. Pure functions; times in seconds."""

import unicodedata
from collections.abc import Iterable, Sequence

from attrs import frozen

from ale_observe_console.progress import Progress

BOLD, DIM, RED, GREEN = "1", "2", "31", "32"
LEAST_BAR, WIDEST_BAR = 8, 40

Span = tuple[str, str]
"""Text, and the code of its style (SGR); empty for none."""
Line = Sequence[Span]


@frozen(kw_only=True)
class Style:
    """What the terminal can show."""

    width: int
    """Columns that may be used."""
    colour: bool
    unicode: bool

    @property
    def bar(self) -> tuple[str, str]:
        """A column of the filled part, and one of the rest."""
        return ("━", "─") if self.unicode else ("=", "-")

    @property
    def ellipsis(self) -> str:
        """What stands for text that was left out."""
        return "…" if self.unicode else "~"


def duration(seconds: float) -> str:
    """`seconds` to two units: ``4s``, ``3m12s``, ``2h05m``, ``3d04h``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole // 60 % 60:02}m"
    return f"{whole // 86400}d{whole // 3600 % 24:02}h"


def speed(per_s: float) -> str:
    """Episodes by the unit that gives a number above 1 where there is one."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if per_s * seconds >= 1 or unit == "h":
            break
    return f"{per_s * seconds:.{0 if per_s * seconds >= 100 else 1}f}/{unit}"


def columns(text: str) -> int:
    """How many columns a terminal gives to printable text."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in text
    )


def shorten(text: str, width: int, ellipsis: str) -> str:
    """`text` in at most `width` columns: its middle is left out, so that numbers at its end stay.

    What is not printable (a task's name may be anything) becomes ``?``.
    """
    text = "".join(c if c.isprintable() else "?" for c in text)
    if columns(text) <= width:
        return text
    if width < 1:
        return ""
    head, tail = text[: len(text) // 2], text[len(text) // 2 :]
    while head or tail:
        if columns(head) > columns(tail) or not tail:
            head = head[:-1]
        else:
            tail = tail[1:]
        if columns(head) + 1 + columns(tail) <= width:
            break
    return head + ellipsis + tail


def paint(line: Line, colour: bool) -> str:
    """One line with its styles, or without."""
    return "".join(f"\x1b[{code}m{text}\x1b[0m" if colour and code else text for text, code in line)


def _width(line: Iterable[Span]) -> int:
    return sum(columns(text) for text, _ in line)


def _fit(parts: Sequence[Line], width: int, gap: str = "  ") -> list[Span]:
    """The parts that fit, in order; the first one is kept whatever its width."""
    line = list(parts[0])
    for part in parts[1:]:
        if _width(line) + len(gap) + _width(part) <= width:
            line += [(gap, ""), *part]
    return line


def _counts(progress: Progress) -> str:
    total = progress.started.n_episodes
    return f"{progress.n_done}" if total is None else f"{progress.n_done}/{total}"


def _success(progress: Progress) -> Line:
    if not progress.n_graded:
        return [("success ", DIM), ("none graded", DIM)]
    percent = f"{100 * progress.n_succeeded / progress.n_graded:.0f}%"
    return [("success ", DIM), (percent, BOLD), (f" of {progress.n_graded}", DIM)]


def _broken(progress: Progress) -> Line:
    return [("broken ", DIM), (f"{progress.n_broken}", RED if progress.n_broken else "")]


def _times(progress: Progress, now: float) -> list[Line]:
    """Time left, rate and time spent, the most wanted first."""
    parts: list[Line] = []
    left, rate = progress.left_s(now), progress.rate.per_s(now)
    if left is not None:
        parts.append([(duration(left), BOLD), (" left", DIM)])
    if rate is not None:
        parts.append([(speed(rate), "")])
    parts.append([(duration(now - progress.started_at), ""), (" so far", DIM)])
    return parts


def _bar(progress: Progress, width: int, style: Style) -> Line:
    total = progress.started.n_episodes
    if not total or width < LEAST_BAR:
        return []
    width = min(width, WIDEST_BAR)
    filled = width * min(progress.n_done, total) // total
    full, empty = style.bar
    return [(" ", ""), (full * filled, GREEN), (empty * (width - filled), DIM)]


def _head(progress: Progress, now: float, style: Style) -> Line:
    counts: list[Span] = [(_counts(progress), BOLD)]
    total = progress.started.n_episodes
    if total:
        counts.append((f" {100 * progress.n_done // total}%", ""))
    line = _fit([counts, *_times(progress, now)], style.width)
    bar = _bar(progress, style.width - _width(line) - 1, style)
    return [*counts, *bar, *line[len(counts) :]]


def _step(progress: Progress, style: Style) -> list[Line]:
    if progress.step is None:
        return []
    metrics: list[Line] = [
        [(f"{name} ", DIM), (f"{value:.4g}", "")] for name, value in progress.step.metrics.items()
    ]
    return [_fit([[("step ", DIM), (f"{progress.step.step}", BOLD)], *metrics], style.width)]


def _evaluations(progress: Progress) -> list[Line]:
    """The first evaluation and the last: what has been learned."""
    if not progress.evaluations:
        return []
    parts: list[Line] = [[("evaluation", DIM)]]
    for event in progress.evaluations:
        percent = "none graded"
        if event.n_graded:
            percent = f"{100 * event.n_succeeded / event.n_graded:.0f}%"
        steps = f" of {event.n_graded} after {event.step} steps"
        parts.append([(percent, BOLD), (steps, DIM)])
    return parts


def _running(progress: Progress, now: float, n: int, style: Style) -> list[Line]:
    lines: list[Line] = []
    for episode in progress.longest(n):
        lead = f"  {duration(now - episode.since):>6} {episode.stage:<8} "
        name = shorten(episode.episode_id, style.width - len(lead), style.ellipsis)
        lines.append([(shorten(lead, style.width, ""), DIM), (name, "")])
    return lines


def frame(progress: Progress, now: float, *, name_running: int, style: Style) -> list[str]:
    """The lines that are redrawn in place, each at most `style.width` columns wide."""
    facts = [
        _success(progress),
        _broken(progress),
        [(f"{len(progress.running)}", ""), (" running", DIM)],
    ]
    evaluated = _evaluations(progress)
    lines = [
        _head(progress, now, style),
        _fit(facts, style.width),
        *_step(progress, style),
        *([_fit(evaluated, style.width)] if evaluated else []),
        *_running(progress, now, name_running, style),
    ]
    return [paint(line, style.colour) for line in lines]


def _sentence(parts: Iterable[Line]) -> str:
    return ", ".join(paint(part, colour=False) for part in parts)


def opening(progress: Progress) -> str:
    """The first plain line."""
    started = progress.started
    total = "episodes" if started.n_episodes is None else f"{started.n_episodes} episodes"
    before = f", {started.n_done} done before" if started.n_done else ""
    return f"ale run {started.run_id}: {total}, {started.concurrency} at once{before}"


def update(progress: Progress, now: float, style: Style) -> str:
    """A plain line on the way. Not cut: a log has no width."""
    oldest = progress.longest(1)
    name = "".join(
        f", longest {duration(now - e.since)} in {e.stage}: {shorten(e.episode_id, 60, '~')}"
        for e in oldest
    )
    facts = [_success(progress), _broken(progress), *_times(progress, now)]
    step = "" if progress.step is None else f", step {progress.step.step}"
    return (
        f"{_counts(progress)} done, {_sentence(facts)}{step}, {len(progress.running)} running{name}"
    )


def closing(progress: Progress, now: float) -> str:
    """The last line: what was done. The run's own summary follows it elsewhere."""
    outcome = "ended" if progress.finished is None else progress.finished.outcome
    spent = duration(now - progress.started_at)
    facts = _sentence([_success(progress), _broken(progress), *_evaluations(progress)])
    return f"{outcome} after {spent}: {_counts(progress)} episodes, {facts}"
