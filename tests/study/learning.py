"""How fast, not only how far: success over training, the area under it, and tests by start."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from attrs import frozen
from measured import Key, Numbers, Row, Table, by_start
from pages import change_text, interval_text

from ale.text import counted
from ale_ablate.area import area
from ale_figures.statistics import estimate, holm, sign_flip

_MOST = 1.0
"""Above it, no success rate lies."""
Curve = Mapping[int, float]
"""Success at the temperature of training, by the number of steps that were done."""


@frozen(kw_only=True)
class Contrast:
    """One cell against another: the difference in area, a number per start."""

    cell: str
    against: str
    differences: Sequence[float]

    @property
    def p(self) -> float:
        """Of the exact sign-flip test over starts."""
        return sign_flip(self.differences)


def curve(run: Numbers) -> Curve:
    """At the highest temperature that was evaluated, which is that of training."""
    highest = max(one.temperature or 0.0 for one in run.evaluated)
    return {
        one.step: one.succeeded / one.graded
        for one in run.evaluated
        if one.temperature == highest and one.graded
    }


def steps(table: Table) -> list[int]:
    """The steps after which every run was evaluated that was evaluated more than once."""
    found = [set(curve(run)) for row in table.rows for run in row.runs.values()]
    several = [each for each in found if len(each) > 1]
    return sorted(set.intersection(*several)) if several else []


def areas(row: Row, at: Sequence[int]) -> Mapping[Key, float]:
    """Area under success by run, of those evaluated after all the steps."""
    found = {key: curve(run) for key, run in row.runs.items()}
    return {
        key: value
        for key, of in found.items()
        if (value := area([(step, of[step]) for step in at if step in of])) is not None
        and set(at) <= set(of)
    }


def contrast(table: Table, cell: str, against: str) -> Contrast:
    """Of the starts that both cells have."""
    at = steps(table)
    rows = {row.cell.label: row for row in table.rows}
    own, others = areas(rows[cell], at), areas(rows[against], at)
    differences = by_start({key: own[key] - others[key] for key in own if key in others})
    return Contrast(cell=cell, against=against, differences=differences)


def markdown(table: Table) -> Iterator[str]:
    """The table of a grid, line by line; each cell against the first by area."""
    at, first = steps(table), table.rows[0].cell.label
    against = [contrast(table, row.cell.label, first) for row in table.rows[1:]]
    known = [each for each in against if each.differences]
    corrected = dict(zip((c.cell for c in known), holm([c.p for c in known]), strict=True))
    shown = {each.cell: f"{_change(each)}, p {corrected[each.cell]:.2g}" for each in known}
    yield f"| cell | starts | {' | '.join(map(str, at))} | area | against the first |"
    yield f"|---|{'---:|' * (len(at) + 3)}"
    for row in table.rows:
        found = by_start(areas(row, at))
        mean = estimate(found)
        means = [_mean(row, step) for step in at]
        texts = [str(len(found)), *means, interval_text(mean and mean.within(0.0, _MOST))]
        yield f"| {row.cell.label} | {' | '.join(texts)} | {shown.get(row.cell.label, '')} |"


def _mean(row: Row, step: int) -> str:
    found = [known[step] for run in row.runs.values() if step in (known := curve(run))]
    return f"{100 * fmean(found):.1f}%" if found else "-"


def whole_starts(table: Table) -> int:
    """Number of starts of which every cell has a run."""
    return len(set.intersection(*({start for start, _ in row.runs} for row in table.rows)))


def primary(table: Table) -> Iterator[str]:
    """The comparisons that were fixed beforehand, with Holm's correction over them alone."""
    found = [contrast(table, *pair) for pair in table.plan.contrasts]
    yield f"{counted(whole_starts(table), 'start')} done."
    yield ""
    yield "| comparison, by area | starts | difference | p | p, Holm |"
    yield "|---|---:|---:|---:|---:|"
    for each, corrected in zip(found, holm([c.p for c in found]), strict=True):
        name = f"{each.cell} - {each.against}"
        yield (
            f"| {name} | {len(each.differences)} | {_change(each)} | {each.p:.2g} "
            f"| {corrected:.2g} |"
        )


def described(table: Table) -> Iterator[str]:
    """Comparisons that were not fixed beforehand, without a test."""
    yield "| comparison, by area | starts | difference |"
    yield "|---|---:|---:|"
    for pair in table.plan.described:
        each = contrast(table, *pair)
        name = f"{each.cell} - {each.against}"
        yield f"| {name} | {len(each.differences)} | {_change(each)} |"


def _change(each: Contrast) -> str:
    found = estimate(each.differences)
    return change_text(found and found.within(-1.0, 1.0))
