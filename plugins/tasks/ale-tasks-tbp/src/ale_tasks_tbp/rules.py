"""Rules for values in a task file: each checks a value, and says itself in JSON Schema.

One object does both, so that the published schema can't allow what the reader refuses.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from ale.strict import describe

ID = r"^[A-Za-z0-9_][A-Za-z0-9._-]*$"


@frozen
class Rule:
    """An attrs validator; None (a value left out) always passes.

    Attributes:
        holds: is this value right?
        expected: what is right, in words.
        schema: the same in JSON Schema, merged into that of the field.
    """

    holds: Callable[[Any], bool]
    expected: str
    schema: Mapping[str, Any]

    def __call__(self, instance: object, attribute: object, value: Any) -> None:
        """Refuse a wrong value with ValueError."""
        if value is not None and not self.holds(value):
            found = "none" if value == () else describe(value)
            raise ValueError(f"expected {self.expected}, found {found}")


def _is_id(value: str) -> bool:
    return re.fullmatch(ID.strip("^$"), value) is not None


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_finite(child) for child in value.values())
    if isinstance(value, list):
        return all(_finite(child) for child in value)
    return not isinstance(value, float) or math.isfinite(value)


task_id = Rule(
    _is_id,
    "letters, digits, '.', '_' and '-', with a letter, a digit or '_' first",
    {"pattern": ID},
)
not_blank = Rule(lambda text: bool(text.strip()), "some text", {"pattern": r"\S"})
none_blank = Rule(
    lambda texts: all(text.strip() for text in texts),
    "some text in every item",
    {"items": {"pattern": r"\S"}},
)
one_or_more = Rule(bool, "at least one", {"minItems": 1})
positive = Rule(
    lambda number: 0 < number < math.inf, "a finite number above 0", {"exclusiveMinimum": 0}
)
finite = Rule(_finite, "finite numbers only", {})  # JSON has no others
