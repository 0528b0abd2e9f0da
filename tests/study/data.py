"""The study's data: a line per run and a line per evaluation, from which its tables are made."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from measured import Key, Measures, Numbers
from plan import Plan

from ale_ablate.measuring import Evaluated

RUNS, EVALUATIONS = "runs.csv", "evaluations.csv"
_RUN = (
    *("training", "peak", "masked", "clamped", "clipped"),
    *("masked_chunks", "clamped_chunks", "age", "chunks", "broken", "seconds"),
)
_EVALUATION = ("step", "temperature", "graded", "succeeded", "broken")


def write(folder: Path, data: Mapping[str, Measures]) -> None:
    """Write both files.

    Args:
        data: by the name of the grid.
    """
    folder.mkdir(parents=True, exist_ok=True)
    named = ("grid", "cell", "asked", "start", "seed")
    with (folder / RUNS).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*named, *_RUN, "rollouts"])
        for where, run in _each(data):
            values = (getattr(run, name) for name in _RUN)
            plain = ("" if value is None else value for value in values)
            writer.writerow([*where, *plain, _packed(run.rollouts)])
    with (folder / EVALUATIONS).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*named, *_EVALUATION])
        for where, run in _each(data):
            for evaluated in run.evaluated:
                values = (getattr(evaluated, name) for name in _EVALUATION)
                writer.writerow([*where, *("" if value is None else value for value in values)])


def _each(data: Mapping[str, Measures]) -> Iterator[tuple[list[Any], Numbers]]:
    for grid, measures in data.items():
        for cell, asked, runs in measures:
            for key, run in runs.items():
                yield [grid, cell.label, asked, *key], run


def read(folder: Path, plans: Sequence[Plan]) -> dict[str, Measures]:
    """The data of every grid that has some."""
    if not (folder / RUNS).exists():
        return {}
    evaluations: dict[tuple[str, str, Key], list[Evaluated]] = {}
    for line in _lines(folder / EVALUATIONS):
        evaluations.setdefault(_where(line), []).append(_evaluated(line))
    found: dict[tuple[str, str], tuple[int, dict[Key, Numbers]]] = {}
    for line in _lines(folder / RUNS):
        grid, label, key = _where(line)
        cell = found.setdefault((grid, label), (int(line["asked"]), {}))
        cell[1][key] = _numbers(line, evaluations[grid, label, key])
    return {
        plan.name: [(cell, *found.get((plan.name, cell.label), (0, {}))) for cell in plan.cells]
        for plan in plans
        if any(grid == plan.name for grid, _ in found)
    }


def merged(stored: Mapping[str, Measures], new: Mapping[str, Measures]) -> dict[str, Measures]:
    """The data of both; a run that both have is the new one's."""
    found = dict(stored)
    for grid, measures in new.items():
        known = {cell.label: (asked, runs) for cell, asked, runs in stored.get(grid, [])}
        found[grid] = [
            (cell, max(asked, before), dict(sorted({**runs, **again}.items())))
            for cell, asked, again in measures
            for before, runs in [known.get(cell.label, (0, {}))]
        ]
    return found


def _where(line: Mapping[str, str]) -> tuple[str, str, Key]:
    return line["grid"], line["cell"], (int(line["start"]), int(line["seed"]))


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _evaluated(line: Mapping[str, str]) -> Evaluated:
    counts = {name: int(line[name]) for name in ("step", "graded", "succeeded", "broken")}
    return Evaluated(temperature=_number(line["temperature"]), repeats=None, **counts)


def _numbers(line: Mapping[str, str], evaluated: Sequence[Evaluated]) -> Numbers:
    return Numbers(
        training=_number(line["training"]),
        peak=float(line["peak"]),
        masked=float(line["masked"]),
        clamped=float(line["clamped"]),
        clipped=float(line["clipped"]),
        masked_chunks=_number(line["masked_chunks"]),
        clamped_chunks=_number(line["clamped_chunks"]),
        age=_number(line["age"]),
        chunks=_number(line["chunks"]),
        rollouts=_unpacked(line["rollouts"]),
        broken=int(line["broken"]),
        seconds=_number(line["seconds"]),
        evaluated=tuple(evaluated),
    )


def _number(text: str) -> float | None:
    return float(text) if text else None


def _packed(rollouts: Sequence[int]) -> str:
    """``40x12``: twelve steps of 40."""
    return " ".join(f"{n}x{len(list(equal))}" for n, equal in groupby(rollouts))


def _unpacked(text: str) -> tuple[int, ...]:
    pairs = (each.split("x") for each in text.split())
    return tuple(int(n) for n, times in pairs for _ in range(int(times)))
