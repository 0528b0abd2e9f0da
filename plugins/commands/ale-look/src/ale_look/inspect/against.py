"""``ale show credit --against values``: schemes beside the measured worth of chunks, as a table."""

import math
from collections.abc import Iterator, Sequence

from ale.errors import InputError
from ale.runs import Crediting, Registry, RunReader
from ale.text import counted, table
from ale.values import NAME, NEGLIGIBLE, Agreement, Interval, compare, read_values, valued
from ale_look.inspect.recrediting import creditings, recredited


def against_values(
    run: RunReader, schemes: Sequence[str], registry: Registry, chunker: str | None
) -> Iterator[str]:
    """A row per scheme, with a legend.

    Args:
        schemes: as for `creditings`; none: every installed one, with its default options.

    Raises:
        InputError: nothing was measured, or as `creditings`.
    """
    values = read_values(run.path / NAME)
    if not values.episodes:
        message = "the values of this run are not all measured"
        hint = f"ale data values {run.path} continues"
        raise InputError.of(message, file=str(run.path / NAME), hint=hint)
    left: list[str] = []
    if schemes:
        compared = creditings(run, schemes, registry, chunker=chunker)
    else:
        compared, left = every_scheme(run, registry, chunker)
    episodes = valued(values, recredited(run, compared), [each.scheme_name for each in compared])
    found = compare(values, episodes)
    measured = values.measured
    yield (
        f"{counted(found.episodes, 'episode')} of {counted(found.tasks, 'task')}, "
        f"{counted(found.chunks, 'chunk')}; {counted(measured.rollouts, 'rollout')} from each "
        f"state; policy {measured.policy[:12]}, sandbox {measured.sandbox[:12]}"
    )
    header = [
        "scheme",
        "correlation",
        "95%",
        "ranks",
        "sign",
        "order",
        "95%",
        "on nothing",
    ]
    ranked = sorted(found.schemes, key=lambda each: -_known(each.pearson.value))
    rows = [_row(each) for each in ranked]
    yield table(header, rows, right=range(1, len(header)))
    yield f"ceiling of the correlation, by split halves: {_number(found.ceiling)}"
    yield (
        "Each number is against the worth of chunks (V after minus V before) from half of the "
        "rollouts; schemes in brackets know V from the other half.\n"
        "order: pairs of chunks of one episode in the right order; on nothing: share of the weight "
        f"on the {100 * found.nothing:.0f}% of the chunks whose worth is below {NEGLIGIBLE:g}.\n"
        "95%: bootstrap over tasks."
    )
    if left:
        yield f"left out: {'; '.join(left)}"


def every_scheme(
    run: RunReader, registry: Registry, chunker: str | None, *, plugin_files: bool = True
) -> tuple[list[Crediting], list[str]]:
    """Every installed scheme that needs no options, and why others are left out.

    Args:
        chunker: as for `creditings`, and so is `plugin_files`.
    """
    found: list[Crediting] = []
    left = []
    for name in registry.names("credit"):
        try:
            found += creditings(run, [name], registry, chunker=chunker, plugin_files=plugin_files)
        except InputError as error:
            left.append(f"{name} ({error.problems[0].message})")
    return found, left


def _known(value: float) -> float:
    return -2.0 if math.isnan(value) else value


def _row(each: Agreement) -> list[str]:
    return [
        each.scheme,
        _number(each.pearson.value),
        _interval(each.pearson),
        _number(each.spearman),
        _share(each.sign),
        _share(each.order.value),
        _interval(each.order, percent=True),
        _share(each.on_nothing),
    ]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.0f}%"


def _interval(of: Interval, *, percent: bool = False) -> str:
    if math.isnan(of.low):
        return "-"
    if percent:
        return f"{100 * of.low:.0f} to {100 * of.high:.0f}"
    return f"{of.low:.2f} to {of.high:.2f}"
