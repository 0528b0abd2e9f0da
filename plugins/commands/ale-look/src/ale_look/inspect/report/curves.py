"""Numbers over training steps, as charts."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import evolve, field, frozen

from ale.text import counted
from ale_figures.charts import Chart, Series
from ale_look.inspect.kinds import Kind, kind_name
from ale_look.inspect.report.gathering import Facts, Sums
from ale_look.inspect.report.tables import ranges

POINTS = 300
"""A curve of more steps is drawn through the means of this many ranges of steps."""


_COUNTS: Mapping[str, Callable[[Sums], int]] = {
    "Turns": lambda sums: sums.turns,
    "Tokens generated": lambda sums: sums.tokens,
}


def episode_charts(facts: Facts) -> Iterator[Chart]:
    """Success, reward and cost of the episodes, training and evaluation apart."""
    yield Chart(
        title="Success",
        series=_by_kind(facts, Sums.success),
        note="share of episodes with a reward of 1; band: 95% interval over tasks (Wilson)",
        share=True,
        wide=True,
    )
    if any(_partial(sums) for sums in facts.by_step.values()):
        yield Chart(
            title="Mean reward",
            series=_by_kind(facts, Sums.mean_reward),
            note="band: 95% interval over tasks (Student)",
            unit_interval=all(
                sums.least >= 0 and sums.most <= 1 for sums in facts.by_step.values()
            ),
        )
    for title, total in _COUNTS.items():
        if any(total(sums) for sums in facts.by_step.values()):
            series = _by_kind(facts, _mean_of(total))
            yield Chart(title=title, series=series, note="per graded episode")
    if any(sums.broken for sums in facts.by_step.values()):
        yield Chart(
            title="Broken episodes",
            series=_by_kind(facts, lambda sums: (sums.broken / max(1, sums.tries),)),
            note="share of all that were tried",
            share=True,
        )
    yield Chart(title="Seconds per episode", series=tuple(_stages(facts)), note="mean, by stage")


def _partial(sums: Sums) -> bool:
    """Are there rewards between 0 and 1? Only then does the mean differ from the success rate."""
    return abs(sums.reward - sums.succeeded) > 1e-9


Value = tuple[float, ...] | None
"""A value, or a value and its bounds."""


def _mean_of(total: Callable[[Sums], int]) -> Callable[[Sums], Value]:
    return lambda sums: (total(sums) / sums.n,) if sums.n else None


_NAMES: Mapping[Kind, str] = {
    "train": "training tasks",
    "evaluation": "held-out tasks",
    "started": "expert starts",
    "shown": "demonstrations",
}


def _by_kind(facts: Facts, value: Callable[[Sums], Value]) -> tuple[Series, ...]:
    made = []
    more = [kind for kind in facts.evaluations() if kind not in _NAMES]
    for colour, kind in enumerate([*_NAMES, *more]):
        rows = [(x, value(sums)) for x, sums in _stretches(facts, kind)]
        known = [(x, found) for x, found in rows if found is not None]
        if known:
            xs, values = zip(*known, strict=True)
            columns = list(zip(*values, strict=True))
            bounds = {"low": columns[1], "high": columns[2]} if len(columns) == 3 else {}
            name = kind_name(kind, {**_NAMES, "evaluation": facts.evaluated_on})
            made.append(Series(name=name, xs=xs, ys=columns[0], colour=colour, **bounds))
    return tuple(made)


def _stretches(facts: Facts, *kinds: Kind) -> Iterator[tuple[float, Sums]]:
    by_step = {
        step: [facts.by_step[kind, step] for kind in kinds if (kind, step) in facts.by_step]
        for step in facts.steps(*kinds)
    }
    for part in ranges(sorted(by_step), POINTS):
        yield sum(part) / len(part), Sums().merged(s for step in part for s in by_step[step])


def _stages(facts: Facts) -> Iterator[Series]:
    rows = list(_stretches(facts, *{kind for kind, _ in facts.by_step}))
    stages = Sums().merged(sums for _, sums in rows).seconds
    for colour, (stage, _) in enumerate(stages.most_common(8)):
        ys = tuple(sums.seconds[stage] / max(1, sums.tries) for _, sums in rows)
        yield Series(name=stage, xs=tuple(x for x, _ in rows), ys=ys, colour=colour)


_FROM_EPISODES = {"success", "mean_reward", "episodes", "broken"}
"""Metrics that are drawn from the episodes instead, with intervals."""
_FIRST = (
    "loss",
    "return",
    "reward",
    "entropy",
    "kl",
    "grad",
    "ratio",
    "mask",
    "clip",
    "mismatch",
    "lr",
    "learning_rate",
    "tokens_per",
    "mfu",
    "lag",
)
_QUANTILE = re.compile(r"^(?P<stem>.+?)[._/](?P<which>p\d\d?|q\d\d?|min|max|mean|median)$")
_ENDS = ("min", "max")
_SECONDS = re.compile(r"^(seconds|time|times)([._/]|$)")
_FRACTION = re.compile(r"[._/](fraction|share)$")


@frozen(kw_only=True)
class _Metric:
    name: str
    values: Mapping[int, float] = field(repr=False)

    def series(self, colour: int = 0, name: str = "") -> Series:
        parts = list(ranges(sorted(self.values), POINTS))
        return Series(
            name=name or self.name,
            xs=tuple(sum(part) / len(part) for part in parts),
            ys=tuple(sum(self.values[step] for step in part) / len(part) for part in parts),
            colour=colour,
        )


def metric_charts(facts: Facts) -> Iterator[Chart]:
    """The trainer's metrics: known names first, then all others.

    Quantiles of one quantity (``ratio_p05``, ``ratio_p95``) share a chart, and so do its minimum
    and maximum, and seconds (``seconds.training``). One that never changes is in `constants`.
    """
    groups: dict[str, list[_Metric]] = {}
    for name in sorted(_varying(facts), key=_rank):
        metric = _Metric(name=name, values=facts.metrics[name])
        groups.setdefault(_group(name, facts.metrics), []).append(metric)
    for title, metrics in groups.items():
        lost = sum(facts.not_finite[metric.name] for metric in metrics)
        note = f"{counted(lost, 'value')} not finite, left out" if lost else ""
        series = tuple(_curves(title, metrics[:_MOST]))
        yield Chart(title=title, series=series, note=note, share=_is_share(metrics))


def constants(facts: Facts) -> Iterator[tuple[str, float]]:
    """Metrics that never changed, with their value."""
    varying = {*_varying(facts), *_FROM_EPISODES}
    for name in sorted(facts.metrics):
        if name not in varying and facts.metrics[name]:
            yield name, next(iter(facts.metrics[name].values()))


def _varying(facts: Facts) -> Iterator[str]:
    for name, values in facts.metrics.items():
        siblings = (facts.metrics[other] for other in facts.metrics if _same(name, other))
        if name not in _FROM_EPISODES and any(
            len({*each.values()}) > 1 for each in (values, *siblings)
        ):
            yield name


def _same(name: str, other: str) -> bool:
    """Are they quantiles of one quantity? A constant one is drawn next to one that varies."""
    return _stem(name) is not None and _stem(name) == _stem(other)


def _is_share(metrics: Sequence["_Metric"]) -> bool:
    return all(
        _FRACTION.search(metric.name) and all(0 <= value <= 1 for value in metric.values.values())
        for metric in metrics
    )


_MOST = 8
"""Curves of one chart."""


def _curves(title: str, metrics: Sequence[_Metric]) -> Iterator[Series]:
    """One for each; quantiles around a middle one are its band."""
    names = [_short(metric.name, title) for metric in metrics]
    middle = next((i for i, name in enumerate(names) if name in _MIDDLE), None)
    steps = {frozenset(metric.values) for metric in metrics}
    if middle is None or len(metrics) != 3 or len(steps) > 1 or _stem(metrics[0].name) is None:
        for i, (name, metric) in enumerate(zip(names, metrics, strict=True)):
            yield metric.series(i, name)
        return
    low, high = (metrics[i].series().ys for i in range(3) if i != middle)
    first, last = (names[i] for i in range(3) if i != middle)
    label = f"{names[middle]}, band {first} to {last}"
    yield evolve(metrics[middle].series(0, label), low=low, high=high)


_MIDDLE = ("p50", "q50", "median", "mean")


def _rank(name: str) -> tuple[int, str]:
    lower = name.lower()
    known = [i for i, word in enumerate(_FIRST) if word in re.split(r"[._/]", lower)]
    known += [i for i, word in enumerate(_FIRST) if word in lower]
    last = len(_FIRST) + bool(_SECONDS.match(lower))
    return (known[0] if known and not _SECONDS.match(lower) else last, _in_order(name))


def _in_order(name: str) -> str:
    """Quantiles by their number, then the minimum, then the maximum."""
    return re.sub(r"([._/])(min|max)$", lambda end: f"{end[1]}~{'nx'.index(end[2][-1])}", name)


def _group(name: str, names: Mapping[str, object]) -> str:
    if spent := _SECONDS.match(name):
        folders = re.split(r"[./]", name[spent.end() :])[:-1]
        return " ".join([spent[1], *folders][:2])
    stem = _stem(name)
    if stem is None or [_stem(other) for other in names].count(stem) < 2:
        return name
    ends = {f"{stem}{name[len(stem)]}{end}" for end in _ENDS}
    inner = {other for other in names if _stem(other) == stem} - ends
    return f"{stem}, min and max" if name in ends and len(inner) > 1 else stem


def _stem(name: str) -> str | None:
    found = _QUANTILE.match(name)
    return None if found is None else found["stem"]


def _short(name: str, title: str) -> str:
    if spent := _SECONDS.match(name):
        part = re.split(r"[./]", name[spent.end() :])[-1]
        return part.replace("_", " ") or "the trainer's step"
    return name if name == title else re.split(r"[._/]", name)[-1]
