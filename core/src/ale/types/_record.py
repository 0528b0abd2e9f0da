"""What every record is: frozen, keyword-only, and written field by field in the order declared."""

from typing import Any, TypeVar, cast, dataclass_transform

from attrs import evolve, field, frozen

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make `cls` a record.

    No slots: msgspec writes the fields of a slotted attrs class in alphabetical order, and a
    person who opens episodes.jsonl wants the id first.
    """
    return frozen(cls, kw_only=True, slots=False)


def replace(record: T, **changes: object) -> T:
    """The same record but for `changes`."""
    return cast(T, evolve(cast(Any, record), **changes))
