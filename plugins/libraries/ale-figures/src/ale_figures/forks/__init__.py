"""Success along an expert's episode, and its crucial forks; a library."""

from ale_figures.forks.curves import LEVEL, Counts, Curve, Curves, Fork, Point, curves, fisher
from ale_figures.forks.places import Place, place_named

__all__ = [
    "LEVEL",
    "Counts",
    "Curve",
    "Curves",
    "Fork",
    "Place",
    "Point",
    "curves",
    "fisher",
    "place_named",
]
