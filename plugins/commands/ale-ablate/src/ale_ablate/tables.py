"""A comparison as a table: for the terminal, as Markdown and as CSV."""

import csv
import io
import os
import textwrap
from collections.abc import Iterator, Sequence

from ale.text import counted, table
from ale_ablate.claims import Claim
from ale_ablate.comparing import Comparison, Measure, Row
from ale_ablate.texts import change_text, estimate_text, p_text, points_text, share_text
from ale_figures.statistics import Estimate, least_p

_INTERVALS = (
    "In brackets: 95% intervals over seeds (Student's t), not corrected for multiple comparisons. "
    "A number without one is from a single seed, or the same for all seeds."
)
_TESTS = (
    "p: exact two-sided sign-flip test of the differences by seed, corrected by Holm for the "
    "{} of this table. With {} it is at least {}."
)

CAPTIONS = (
    "frozen: the weights that every arm begins with, decoded cooler and as in training",
    "reward-blind: the same steps with the weight 1 for every episode",
    "imitation: the demonstrations again, as many steps, and no further ones: equal supervision",
    "p: exact two-sided sign-flip test of the differences by seed; Holm: corrected for all of them",
)
Rows = tuple[list[str], list[list[str]]]


def terminal(comparison: Comparison) -> str:
    """Means, their captions, and differences."""
    lines = [*captions(comparison), *(f"note: {note}" for note in comparison.notes)]
    wrapped = (textwrap.fill(line, 100, subsequent_indent="  ") for line in lines)
    parts = [_aligned(*_means(comparison)), *wrapped]
    if len(arms(comparison)) > 1:
        parts += ["", f"{_difference_title(comparison)}", _aligned(*_differences(comparison))]
        parts += map(_item, tests(comparison))
    if comparison.claims:
        header, rows = decoded(comparison)
        parts += ["", "With controls", table(header, rows, right=range(2, 5))]
        header, rows = compared(comparison.claims)
        parts += ["", table(header, rows, right=range(2, 6))]
        lines = [*CAPTIONS, *(claim.sentence for claim in comparison.claims)]
        parts += map(_item, lines)
    return "\n".join(parts)


def _item(text: str) -> str:
    return textwrap.fill(f"- {text}", 100, subsequent_indent="  ")


def arms(comparison: Comparison) -> list[Row]:
    """The rows that are no control."""
    return [row for row in comparison.rows if not row.cell.control]


def tests(comparison: Comparison) -> Iterator[str]:
    """How differences are tested; nothing where they are not."""
    n = sum(len(row.tests) for row in comparison.rows)
    if n:
        most = max(pairs(comparison, row) for row in comparison.rows if row.tests)
        yield _TESTS.format(
            counted(n, "test"), counted(most, "seed"), p_text(min(1.0, n * least_p(most)))
        )


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return table(header, rows, right=range(1, len(header)))


def markdown(comparison: Comparison) -> str:
    """The same as a document, with a table of the runs."""
    parts = [f"# {_text(comparison.grid.name)}: {_progress(comparison)}", ""]
    parts += [*_grid_of_text(*_means(comparison)), "", *captions(comparison)]
    parts += [f"\n**Note:** {_text(note)}" for note in comparison.notes]
    if len(arms(comparison)) > 1:
        parts += ["", f"## {_text(_difference_title(comparison))}", ""]
        parts += _grid_of_text(*_differences(comparison))
        parts += ["", *(f"- {line}" for line in tests(comparison))]
    if comparison.claims:
        parts += ["", "## With controls", "", *_grid_of_text(*decoded(comparison)), ""]
        parts += [*_grid_of_text(*compared(comparison.claims)), ""]
        lines = [*CAPTIONS, *(_text(claim.sentence) for claim in comparison.claims)]
        parts += [f"- {line}" for line in lines]
    parts += ["", "## Runs", ""]
    parts += _grid_of_text(*runs(comparison))
    return "\n".join(parts) + "\n"


def _progress(comparison: Comparison) -> str:
    return f"{comparison.completed} of {counted(len(comparison.runs), 'run')} completed"


def captions(comparison: Comparison) -> Iterator[str]:
    """What the columns mean."""
    for measure in comparison.measures:
        yield f"- {measure.title}: {measure.description}"
    yield f"- {_INTERVALS}"


def _difference_title(comparison: Comparison) -> str:
    first = comparison.rows[0].cell.name
    return f"Differences to {first}, paired by seed (success in percentage points)"


def _means(comparison: Comparison) -> Rows:
    header = ["cell", "runs", *(measure.title for measure in comparison.measures)]
    rows = [
        [
            row.cell.name,
            f"{row.completed} of {len(row.runs)}",
            *(estimate_text(m, row.means[m.key], row.completed) for m in comparison.measures),
        ]
        for row in comparison.rows
    ]
    return header, rows


def _differences(comparison: Comparison) -> Rows:
    header = ["cell", "pairs", *(measure.title for measure in comparison.measures)]
    rows = []
    for row in arms(comparison)[1:]:
        n = pairs(comparison, row)
        found = (difference_text(m, row, n) for m in comparison.measures)
        rows.append([row.cell.name, str(n), *found])
    return header, rows


def pairs(comparison: Comparison, row: Row) -> int:
    """Seeds that are completed in this cell and in the first."""
    done = [
        {run.slot.seed for run in each.runs if run.state == "completed"}
        for each in (comparison.rows[0], row)
    ]
    return len(done[0] & done[1])


def runs(comparison: Comparison) -> Rows:
    """Every run with its numbers and its directory."""
    header = ["cell", "seed", "state", *(m.title for m in comparison.measures), "broken", "run"]
    rows = []
    for row in comparison.rows:
        for run in row.runs:
            values = (row.values[m.key].get(run.slot.seed) for m in comparison.measures)
            numbers = [
                "-" if value is None else estimate_text(measure, Estimate(n=1, mean=value), 1)
                for measure, value in zip(comparison.measures, values, strict=True)
            ]
            where = "-"
            if run.path is not None:
                where = os.path.relpath(run.path, comparison.grid.path)
            rows.append(
                [row.cell.name, str(run.slot.seed), run.state, *numbers, str(run.broken), where]
            )
    return header, rows


def decoded(comparison: Comparison) -> Rows:
    """Success of arms and controls before and after."""
    header = ["arm or control", "decoded", "seeds", "before", "after"]
    rows = [
        [
            each.cell,
            each.how,
            str(len(each.after)),
            share_text(each.mean_before, len(each.before)),
            share_text(each.mean_after, len(each.after)),
        ]
        for each in comparison.decoded
    ]
    return header, rows


def compared(claims: Sequence[Claim]) -> Rows:
    """Each arm against each control."""
    header = ["arm", "against", "pairs", "difference", "p", "Holm"]
    rows = [
        [
            claim.arm.name,
            each.control.name,
            str(each.difference.n),
            points_text(each.difference, each.difference.n),
            p_text(each.p),
            p_text(each.corrected),
        ]
        for claim in claims
        for each in claim.compared
    ]
    return header, rows


def difference_text(measure: Measure, row: Row, expected: int) -> str:
    """A cell's difference to the first, with the corrected p where it is tested."""
    text = change_text(measure, row.differences[measure.key], expected)
    test = row.tests.get(measure.key)
    return text if test is None else f"{text} p={p_text(test.corrected)}"


def _grid_of_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(map(_text, header))} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(map(_text, row))} |"


def _text(value: str) -> str:
    """Escape Markdown and column separators."""
    flat = " ".join(value.split())
    return "".join(f"\\{letter}" if letter in "\\|`*_<>[]" else letter for letter in flat)


def comma_separated(comparison: Comparison) -> str:
    """A line per cell and measure, plain numbers: shares of 1, episodes, seconds."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    of_mean = ["n", "mean", "low", "high"]
    of_change = ["pairs", "difference", "difference_low", "difference_high"]
    writer.writerow(["cell", "measure", *of_mean, *of_change, "p", "p_holm", "seeds"])
    for row in comparison.rows:
        for measure in comparison.measures:
            of = row.values[measure.key]
            seeds = " ".join(map(str, of))
            mean, change = row.means[measure.key], row.differences[measure.key]
            test = row.tests.get(measure.key)
            p = ["", ""] if test is None else [test.p, test.corrected]
            writer.writerow([row.cell.name, measure.key, *_plain(mean), *_plain(change), *p, seeds])
    return file.getvalue()


def _plain(found: Estimate | None) -> list[object]:
    """Number, mean and bounds; empty where unknown."""
    if found is None:
        return [0, "", "", ""]
    return [found.n, found.mean, *("" if b is None else b for b in (found.low, found.high))]


def runs_comma_separated(comparison: Comparison) -> str:
    """A line per run: the values behind the other table."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    keys = [measure.key for measure in comparison.measures]
    writer.writerow(["cell", "seed", "state", *keys, "broken", "run"])
    for row in comparison.rows:
        for run in row.runs:
            where = "" if run.path is None else os.path.relpath(run.path, comparison.grid.path)
            values = [row.values[key].get(run.slot.seed, "") for key in keys]
            writer.writerow([row.cell.name, run.slot.seed, run.state, *values, run.broken, where])
    return file.getvalue()


def evaluations_comma_separated(comparison: Comparison) -> str:
    """A line per run and evaluation, with counts."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    of_one = ["graded", "succeeded", "broken", "k", "pass_at_k", "majority"]
    writer.writerow(["cell", "control", "seed", "state", "start", "step", "temperature", *of_one])
    for run in comparison.runs:
        cell = run.slot.cell
        for each in run.evaluated:
            several = each.repeats
            of_several = [1, "", ""]
            if several is not None:
                of_several = [several.k, several.pass_at_k, several.majority]
            where = [run.start, each.step, "" if each.temperature is None else each.temperature]
            counts = [each.graded, each.succeeded, each.broken]
            writer.writerow(
                [cell.name, cell.control, run.slot.seed, run.state, *where, *counts, *of_several]
            )
    return file.getvalue()
