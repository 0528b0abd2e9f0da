"""What is drawn: curves that share their axes."""

from attrs import frozen


@frozen(kw_only=True)
class Series:
    """One curve: a value for each of `xs`, and where known the bounds of a band around it.

    `xs` ascend; `low` and `high` are as long as `ys`, or empty where there is no band.
    """

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    colour: int = 0
    """There are eight; from 8 on they come again, with dashes."""


@frozen(kw_only=True)
class Chart:
    """Curves that share their axes; at least one."""

    title: str
    series: tuple[Series, ...]
    note: str = ""
    share: bool = False
    """Values are shares of 1, shown in percent."""
    whole: bool = False
    """Values lie between 0 and 1."""
    wide: bool = False
    x: str = "step"
    """What lies along the axis, in the singular."""
