"""Charts as HTML: lines in an SVG that fills its box, and words beside it, which never shrink."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from html import escape

from ale_charts.chart import Chart, Series

_BOX = 1000
_TICKS = 4
_NOISE = 1e-3
"""Values that differ by less than this share of their size are drawn as the flat line they are."""
_COLOURS = 8
_DOTS = 25
"""A curve of fewer points shows each of them."""


def draw(chart: Chart) -> str:
    """A figure: title, key, plot with axes, and the numbers for what points at it."""
    scale = _Scale(chart)
    last = "" if len(chart.series) != 1 else number(chart.series[0].ys[-1], chart.share)
    wide = " wide" if chart.wide else ""
    note = "; ".join(filter(None, [chart.note, "logarithmic" if scale.log else ""]))
    return "".join(
        [
            f'<figure class="chart{wide}"><figcaption><b>{escape(_title(chart.title))}</b>',
            f'<span class="last">{last}</span>' if last else "",
            f"<small>{escape(note)}</small>" if note else "",
            *_key(chart),
            "</figcaption>",
            f'<div class="plot" tabindex="0" role="img" aria-label="{escape(_spoken(chart))}" '
            f"data-curves='{escape(_data(chart, scale), quote=True)}'>",
            *(
                f'<span class="y" style="bottom:{100 * scale.up(tick):.2f}%">'
                f"{number(tick, chart.share)}</span>"
                for tick in scale.ticks
            ),
            f'<svg viewBox="0 0 {_BOX} {_BOX}" preserveAspectRatio="none" aria-hidden="true">',
            *(_rule(scale.up(tick)) for tick in scale.ticks),
            *(_band(series, scale) for series in chart.series if series.low),
            *(_line(series, scale) for series in chart.series),
            "</svg>",
            *(dot for series in chart.series for dot in _dots(series, scale)),
            *(
                f'<span class="x" style="left:{100 * scale.across(x):.2f}%">{x:g}</span>'
                for x in scale.steps
            ),
            "</div></figure>",
        ]
    )


_WORDS = {
    "lr": "learning rate",
    "kl": "KL",
    "rl": "RL",
    "mfu": "MFU",
    "grad": "gradient",
    "logp": "log p",
}


def _title(name: str) -> str:
    parts = re.split(r"[./]", name)
    said = [" ".join(_WORDS.get(word, word) for word in part.split("_")) for part in parts]
    words = re.sub(r" per s$", " per second", " · ".join(said))
    return words[:1].upper() + words[1:]


class _Scale:
    """From numbers to shares of the box."""

    def __init__(self, chart: Chart) -> None:
        xs = [x for series in chart.series for x in series.xs]
        ys = [y for series in chart.series for y in (*series.ys, *series.low, *series.high)]
        self._left, self._right = min(xs), max(xs)
        self.steps = _steps(self._left, self._right)
        positive = [y for y in ys if y > 0]
        self.log = (
            not chart.share and len(positive) == len(ys) and max(positive) > 1000 * min(positive)
        )
        if chart.share or chart.whole:
            self.ticks: Sequence[float] = _share_ticks(max(ys))
        elif self.log:
            self.ticks = _powers(min(positive), max(positive))
        else:
            self.ticks = _round_ticks(min(ys), max(ys))
        self._bottom, self._top = self._at(self.ticks[0]), self._at(self.ticks[-1])

    def _at(self, y: float) -> float:
        return math.log10(y) if self.log else y

    def across(self, x: float) -> float:
        """0 at the left, 1 at the right."""
        return 0.5 if self._right == self._left else (x - self._left) / (self._right - self._left)

    def up(self, y: float) -> float:
        """0 at the bottom, 1 at the top."""
        return (self._at(y) - self._bottom) / (self._top - self._bottom)


def _share_ticks(highest: float) -> Sequence[float]:
    for top in (0.1, 0.25, 0.5):
        if highest <= top:
            return [top * i / 5 for i in range(6)]
    return [0.0, 0.25, 0.5, 0.75, 1.0]


def _powers(low: float, high: float) -> Sequence[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = -(-(last - first) // _TICKS)
    return [10.0**power for power in range(first, last + stride, stride)]


def _round_ticks(low: float, high: float) -> Sequence[float]:
    """Round numbers that enclose both; 0 among them where it is near."""
    if low > 0 and low < 0.6 * high:
        low = 0.0
    if high - low < _NOISE * max(abs(low), abs(high)) or high == low:
        middle = (low + high) / 2
        low, high = middle - abs(middle) / 100, middle + abs(middle) / 100
    if high == low:
        low, high = 0.0, 1.0
    raw = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    stride = next(power * n for n in (1, 2, 2.5, 5, 10) if power * n >= raw * 0.999)
    first, last = math.floor(low / stride + 1e-9), math.ceil(high / stride - 1e-9)
    return [i * stride for i in range(first, last + 1)]


def _steps(left: float, right: float) -> Sequence[float]:
    """Whole steps, a few of them, both ends named."""
    if right == left:
        return [left]
    raw = (right - left) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    stride = max(1.0, next(power * n for n in (1, 2, 5, 10) if power * n >= raw * 0.999))
    inner = [i * stride for i in range(math.ceil(left / stride), math.floor(right / stride) + 1)]
    near = 0.12 * (right - left)
    return [left, *(x for x in inner if x - left > near and right - x > near), right]


def number(value: float, share: bool = False) -> str:
    """As short as it stays readable; a share in percent."""
    if share:
        return f"{100 * value:.3g}%"
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-3:
        return f"{value:.2g}".replace("e-0", "e-").replace("e+", "e")
    for unit, above in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if size >= above:
            return f"{value / (1e3 if unit == 'k' else above):.3g}{unit}"
    return f"{value:.4g}"


def _key(chart: Chart) -> Iterator[str]:
    if len(chart.series) < 2 and chart.series[0].name == chart.title:
        return
    yield '<span class="key">'
    for series in chart.series:
        yield f'<span><i class="{_colour(series)}"></i>{escape(series.name)}</span>'
    yield "</span>"


def _spoken(chart: Chart) -> str:
    ends = [
        f"{series.name}: {number(series.ys[0], chart.share)} at {chart.x} {series.xs[0]:g}, "
        f"{number(series.ys[-1], chart.share)} at {chart.x} {series.xs[-1]:g}"
        for series in chart.series
    ]
    over = f"{chart.x}s"
    return f"{_title(chart.title)} over {over}. {'; '.join(ends)}. Arrow keys read single {over}."


def _data(chart: Chart, scale: _Scale) -> str:
    """What the page says of a point: its place, and each curve's number in words."""
    rows: dict[float, list[list[str]]] = {}
    for series in chart.series:
        for i, x in enumerate(series.xs):
            said = number(series.ys[i], chart.share)
            if series.low:
                low, high = series.low[i], series.high[i]
                said += f" ({number(low, chart.share)} to {number(high, chart.share)})"
            name = series.name if len(chart.series) > 1 else ""
            rows.setdefault(x, []).append([_colour(series), name, said])
    points = [[round(scale.across(x), 4), f"{chart.x} {x:g}", rows[x]] for x in sorted(rows)]
    return json.dumps(points)


def _colour(series: Series) -> str:
    """Its classes; after the last colour they begin again, dashed."""
    return f"c{series.colour % _COLOURS}" + (" dashed" if series.colour >= _COLOURS else "")


def _rule(up: float) -> str:
    y = _BOX * (1 - up)
    return f'<line class="rule" x1="0" x2="{_BOX}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _points(xs: Sequence[float], ys: Sequence[float], scale: _Scale) -> Iterator[str]:
    for x, y in zip(xs, ys, strict=True):
        yield f"{_BOX * scale.across(x):.1f},{_BOX * (1 - scale.up(y)):.1f}"


def _band(series: Series, scale: _Scale) -> str:
    if len(series.xs) == 1:
        x, low, high = series.xs[0], series.low[0], series.high[0]
        ends = " ".join(_points((x, x), (low, high), scale))
        return f'<polyline class="line bar {_colour(series)}" points="{ends}"/>'
    there = _points(series.xs, series.high, scale)
    back = _points(series.xs[::-1], series.low[::-1], scale)
    return f'<polygon class="band {_colour(series)}" points="{" ".join((*there, *back))}"/>'


def _line(series: Series, scale: _Scale) -> str:
    points = " ".join(_points(series.xs, series.ys, scale))
    return f'<polyline class="line {_colour(series)}" points="{points}"/>'


def _dots(series: Series, scale: _Scale) -> Iterator[str]:
    if len(series.xs) <= _DOTS:
        for x, y in zip(series.xs, series.ys, strict=True):
            left, bottom = 100 * scale.across(x), 100 * scale.up(y)
            style = f"left:{left:.2f}%;bottom:{bottom:.2f}%"
            yield f'<i class="dot {_colour(series)}" style="{style}"></i>'


def sparkline(values: Sequence[float]) -> str:
    """Shares of 1 over time, as small as a word."""
    if len(values) < 2:
        return ""
    step = _BOX / (len(values) - 1)
    points = " ".join(f"{i * step:.0f},{_BOX * (1 - v):.0f}" for i, v in enumerate(values))
    return (
        f'<svg class="spark" viewBox="0 -50 {_BOX} {_BOX + 100}" preserveAspectRatio="none" '
        f'aria-hidden="true"><polyline class="line c0" points="{points}"/></svg>'
    )
