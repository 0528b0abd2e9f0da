"""Charts as data for the script of the page (uPlot draws them), and as words and tables."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ale_figures.charts.chart import Chart, Series

_DIGITS = 6
"""Significant digits of a value in the page."""
_LOG_RATIO = 1000
"""Positive values that span more than this factor get a logarithmic axis."""
_TOPS = (0.1, 0.25, 0.5)
"""Upper ends of the axis for small shares; otherwise 1."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_WORDS = {
    "lr": "learning rate",
    "kl": "KL",
    "rl": "RL",
    "mfu": "MFU",
    "grad": "gradient",
    "logp": "log p",
}


def chart_data(chart: Chart) -> dict[str, Any]:
    """The data from which the script draws a chart: columns over the union of all x values.

    A series has null where it has no value at an x.
    """
    xs = _union(chart)
    return {
        "x": chart.x,
        "share": chart.share,
        "log": is_logarithmic(chart),
        "range": _range(chart),
        "xs": xs,
        "series": [
            {
                "name": series.name,
                "colour": series.colour,
                "ys": _column(series, series.ys, xs),
                "low": _column(series, series.low, xs) if series.low else None,
                "high": _column(series, series.high, xs) if series.high else None,
            }
            for series in chart.series
        ],
    }


def _union(chart: Chart) -> list[float]:
    return sorted({x for series in chart.series for x in series.xs})


def _column(series: Series, values: Sequence[float], xs: Sequence[float]) -> list[float | None]:
    at = dict(zip(series.xs, values, strict=True))
    return [None if x not in at else float(f"{at[x]:.{_DIGITS}g}") for x in xs]


def is_logarithmic(chart: Chart) -> bool:
    """Whether the values are positive and span several powers of ten."""
    ys = [y for series in chart.series for y in (*series.ys, *series.low, *series.high)]
    return not chart.share and min(ys) > 0 and max(ys) > _LOG_RATIO * min(ys)


def _range(chart: Chart) -> list[float] | None:
    """Both ends of the y axis where they are fixed; else the script finds them."""
    if not (chart.share or chart.unit_interval):
        return None
    highest = max(y for series in chart.series for y in (*series.ys, *series.high))
    return [0.0, next((top for top in _TOPS if highest <= top), 1.0)]


def chart_table(chart: Chart) -> Iterator[list[str]]:
    """The same numbers as rows of text, for browsers without scripts: the x, then each series."""
    columns = [_texts(series, chart.share) for series in chart.series]
    for x in _union(chart):
        yield [f"{x:g}", *(column.get(x, "-") for column in columns)]


def _texts(series: Series, share: bool) -> dict[float, str]:
    texts = {}
    for i, x in enumerate(series.xs):
        texts[x] = number(series.ys[i], share)
        if series.low:
            low, high = number(series.low[i], share), number(series.high[i], share)
            texts[x] += f" ({low} to {high})"
    return texts


def chart_title(name: str) -> str:
    """A metric's name in words: ``grad_norm`` becomes ``Gradient norm``."""
    parts = re.split(r"[./]", name)
    words = [" ".join(_WORDS.get(word, word) for word in part.split("_")) for part in parts]
    text = re.sub(r" per s$", " per second", " · ".join(words))
    return text[:1].upper() + text[1:]


def chart_label(chart: Chart) -> str:
    """The chart in one sentence, for screen readers."""
    ends = [
        f"{series.name}: {number(series.ys[0], chart.share)} at {chart.x} {series.xs[0]:g}, "
        f"{number(series.ys[-1], chart.share)} at {chart.x} {series.xs[-1]:g}"
        for series in chart.series
    ]
    return f"{chart_title(chart.title)} over {chart.x}s. {'; '.join(ends)}."


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


def sparkline(values: Sequence[float]) -> str:
    """Fractions of 1 over time as a word of block characters; empty for fewer than two."""
    if len(values) < 2:
        return ""
    last = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(last * min(1.0, max(0.0, value)))] for value in values)
