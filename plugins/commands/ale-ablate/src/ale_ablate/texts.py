"""Means and differences as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ale_figures.statistics import Estimate

if TYPE_CHECKING:
    from ale_ablate.comparing import Measure

_TIMES = ((3600.0, " h"), (60.0, " min"), (1.0, " s"))
_ENOUGH = 2
"""The least number of a unit for that unit to be used."""
_ROUND = 10


def estimate_text(measure: Measure, found: Estimate | None, expected: int) -> str:
    """``63.5% (53.6 to 72.4)``, with ``n=4`` where seeds are missing.

    Args:
        expected: number of seeds when complete.
    """
    return share_text(found, expected) if measure.share else _text(measure, found, expected, "")


def change_text(measure: Measure, found: Estimate | None, expected: int) -> str:
    """``+3.1 (-2.0 to +8.2)``; of shares in percentage points."""
    return points_text(found, expected) if measure.share else _text(measure, found, expected, "+")


def share_text(found: Estimate | None, expected: int) -> str:
    """As `estimate_text` of a share of 1."""
    return _format(found, expected, size=0.01, unit="%")


def points_text(found: Estimate | None, expected: int) -> str:
    """As `change_text` of a share of 1."""
    return _format(found, expected, size=0.01, sign="+")


def points(value: float) -> str:
    """``+3.1`` for 0.031."""
    return _number(value, 0.01, 1, "+")


def p_text(p: float) -> str:
    """``0.031``; ``0.0020``."""
    return f"{p:.3f}" if p >= 0.01 else f"{p:.2g}"


def _text(measure: Measure, found: Estimate | None, expected: int, sign: str) -> str:
    if found is None or not measure.seconds:
        digits = 0 if found is not None and found.mean == round(found.mean) else 1
        return _format(found, expected, digits=digits, sign=sign)
    far = max(abs(value) for value in (found.mean, found.low or 0.0, found.high or 0.0))
    size, unit = next((each for each in _TIMES if far >= each[0] * _ENOUGH), _TIMES[-1])
    digits = 1 if far / size >= _ROUND else 2
    return _format(found, expected, size=size, digits=digits, unit=unit, sign=sign)


def _format(
    found: Estimate | None,
    expected: int,
    *,
    size: float = 1.0,
    digits: int = 1,
    unit: str = "",
    sign: str = "",
) -> str:
    if found is None:
        return "-"
    mean, low, high = (
        None if value is None else _number(value, size, digits, sign)
        for value in (found.mean, found.low, found.high)
    )
    bounds = "" if found.low == found.high else f" ({low} to {high})"
    n = "" if found.n == expected else f" n={found.n}"
    return f"{mean}{unit}{bounds}{n}"


def _number(value: float, size: float, digits: int, sign: str) -> str:
    text = f"{value / size:{sign},.{digits}f}"
    # A value that rounds to zero is not negative.
    return text.replace("-", sign) if float(text.replace(",", "")) == 0 else text
