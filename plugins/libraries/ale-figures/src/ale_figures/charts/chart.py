"""The data of a chart: curves that share their axes."""

from attrs import frozen


@frozen(kw_only=True)
class Series:
    """One curve: a value for each of `xs`, optionally with the bounds of a band around it.

    `xs` ascend; `low` and `high` are as long as `ys`, or empty where there is no band.
    """

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    colour: int = 0
    """There are eight; from 8 on they repeat, dashed."""


@frozen(kw_only=True)
class Chart:
    """Curves that share their axes; at least one."""

    title: str
    series: tuple[Series, ...]
    note: str = ""
    share: bool = False
    """Values are fractions of 1, shown in percent."""
    unit_interval: bool = False
    """Values lie between 0 and 1."""
    wide: bool = False
    x: str = "step"
    """Name of the x axis, in the singular."""
