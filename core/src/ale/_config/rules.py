"""Rules over the figures of a step: `run.stop_if` and `run.alert_if`."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

_COMPARED: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_RULE = re.compile(
    r"\s*(?P<metric>[A-Za-z][\w.-]*)\s*(?P<how><=|>=|<|>)\s*"
    r"(?P<limit>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"(?:\s+for\s+(?P<steps>[1-9]\d{0,5})\s+steps?)?\s*"
)


@frozen
class Rule:
    """A metric of a step below or above a limit, for a number of steps."""

    text: str
    metric: str
    how: str
    limit: float
    steps: int

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """``entropy < 0.1 for 3 steps``. Raises `ValueError` if it is none."""
        found = _RULE.fullmatch(text)
        if found is None:
            raise ValueError(
                "expected a metric, one of < <= > >=, a number and, if one step is not enough, "
                f"'for N steps', such as 'entropy < 0.1 for 3 steps'; found '{text}'"
            )
        return cls(
            text=" ".join(text.split()),
            metric=found["metric"],
            how=found["how"],
            limit=float(found["limit"]),
            steps=int(found["steps"] or 1),
        )

    def holds(self, value: float) -> bool:
        """Is the value on the side of the limit that the rule names?"""
        return _COMPARED[self.how](value, self.limit)


def are_rules(_: object, __: object, value: Sequence[str]) -> None:
    """Validator of an option: raises `ValueError` for a text that is no rule."""
    for text in value:
        Rule.parse(text)
