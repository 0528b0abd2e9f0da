"""Warnings about a grid that people should read before they read its numbers."""

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from ale_ablate.grid import Cell, Grid

_WITHOUT_EFFECT = ("credit", "chunker")
"""Sections that change nothing but training."""


def stored_notes(grid: Grid) -> list[str]:
    """The notes of a grid on disk.

    Raises:
        OSError: a cell's config can't be read.
    """
    configs = ((cell, grid.config(cell).read_text(encoding="utf-8")) for cell in grid.cells)
    return [*grid.notes, *notes((cell, yaml.safe_load(text)) for cell, text in configs)]


def notes(configs: Iterable[tuple[Cell, Mapping[str, Any]]]) -> list[str]:
    """One sentence where credit or chunks are compared and nothing is trained."""
    pairs = list(configs)
    idle = [
        cell
        for cell, config in pairs
        if not config.get("trainer") and not cell.control and _varies_credit(cell)
    ]
    if not idle:
        return []
    names = ", ".join(cell.name for cell in idle)
    who = "no cell has a trainer" if len(idle) == len(pairs) else f"no trainer in {names}"
    return [f"{who}: nothing is trained, so credit and chunker have no effect on these numbers"]


def _varies_credit(cell: Cell) -> bool:
    keys = (override.partition("=")[0] for override in cell.overrides)
    return any(key.partition(".")[0] in _WITHOUT_EFFECT for key in keys)
