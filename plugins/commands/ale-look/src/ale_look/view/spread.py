"""How the credit of a step's chunks is spread, over training steps."""

from pathlib import Path

from ale.runs import Lines, OnDamage
from ale.types import CreditedEpisode
from ale_figures.charts import Chart, Series

_QUANTILES = (0.05, 0.5, 0.95)
_FILES = "credits/*.jsonl"


class Spread:
    """Quantiles of the weights, by step. A step's file is written whole, so each is read once."""

    def __init__(self, path: Path, on_damage: OnDamage | None = None) -> None:
        self._path = path
        self._on_damage = on_damage
        self._known: dict[int, tuple[int, tuple[float, ...] | None]] = {}
        """By step: when its file was written, and its quantiles; None for a step without chunks."""

    def chart(self) -> Chart | None:
        """The chart; None for fewer than two steps with credit."""
        for file in self._path.glob(_FILES):
            written = file.stat().st_mtime_ns
            if file.stem.isdecimal() and self._known.get(int(file.stem), (0,))[0] != written:
                self._known[int(file.stem)] = (written, _quantiles(file, self._on_damage))
        found = {step: each for step, (_, each) in sorted(self._known.items()) if each}
        if len(found) < 2:
            return None
        low, middle, high = zip(*found.values(), strict=True)
        series = Series(name="median weight", xs=(*found,), ys=middle, low=low, high=high)
        note = "weights of the chunks of a step; band: 5% to 95% of them"
        return Chart(title="Credit", series=(series,), note=note)


def _quantiles(file: Path, on_damage: OnDamage | None) -> tuple[float, ...] | None:
    rows = Lines(file, CreditedEpisode, on_damage)
    weights = sorted(w for row in rows for w in row.credit.weights)
    if not weights:
        return None
    return tuple(weights[min(len(weights) - 1, int(q * len(weights)))] for q in _QUANTILES)
