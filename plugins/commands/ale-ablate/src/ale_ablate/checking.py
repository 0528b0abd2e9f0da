"""Every combination is checked before anything is started."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from ale.errors import InputError, Problem
from ale.runs import Registry, check_config
from ale_ablate.grid import Cell

_NAMED = 3
"""Cells that a message names; the rest are counted."""


@frozen(kw_only=True)
class CheckedCell:
    """A cell that can be run."""

    cell: Cell
    config: Mapping[str, Any]
    episodes: int | None
    """Per seed, training and evaluation; None where it depends on the course of the run."""


def check_cells(
    path: Path,
    cells: Sequence[Cell],
    overrides: Sequence[str],
    registry: Registry,
    option: str = "--set",
) -> list[CheckedCell]:
    """Check the config of every cell.

    Args:
        overrides: of all cells; applied before a cell's own.
        option: that the cells' own overrides were given with, for messages.

    Raises:
        InputError: every problem of every cell, each once, with the cells that have it.
    """
    made: list[CheckedCell] = []
    problems: dict[Problem, list[Cell]] = {}
    for cell in cells:
        try:
            checked = check_config(path, registry, (*overrides, *cell.overrides))
        except InputError as error:
            for problem in dict.fromkeys(error.problems):
                named = _given_by(option, problem, cell.overrides, overrides)
                problems.setdefault(named, []).append(cell)
            continue
        made.append(CheckedCell(cell=cell, config=checked.config, episodes=checked.episodes))
    if problems:
        raise InputError([_with_cells(problem, of, len(cells)) for problem, of in problems.items()])
    return made


@contextmanager
def warned_once() -> Iterator[None]:
    """Show each warning once: that of one cell is mostly that of all."""
    shown: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        text, n = record.getMessage(), len(shown)
        shown.add(text)
        return len(shown) > n

    handlers = list(logging.getLogger().handlers)
    for handler in handlers:
        handler.addFilter(is_new)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_new)


def _given_by(option: str, problem: Problem, own: Sequence[str], shared: Sequence[str]) -> Problem:
    """The problem with the option that gave its value: a cell's own overrides or those of all."""
    if problem.file != "--set":
        return problem
    about = f"{problem.path}."
    # A mistake high in a key, such as 'objectiv' in trainer.objectiv.mask, is above the key.
    below = any(f"{key}.".startswith(about) for key in _keys(own))
    shared_below = any(f"{key}.".startswith(about) for key in _keys(shared))
    if any(about.startswith(f"{key}.") for key in _keys(own)) or (below and not shared_below):
        return evolve(problem, file=option)
    return problem


def _keys(overrides: Sequence[str]) -> list[str]:
    return [override.partition("=")[0] for override in overrides]


def _with_cells(problem: Problem, cells: Sequence[Cell], n: int) -> Problem:
    if len(cells) == n:
        return problem
    named = "; ".join(cell.name for cell in cells[:_NAMED])
    more = f" and {len(cells) - _NAMED} more" if len(cells) > _NAMED else ""
    plural = "cell" if len(cells) == 1 else "cells"
    return evolve(problem, message=f"{problem.message} (in the {plural} {named}{more})")
