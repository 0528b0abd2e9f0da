"""The decorator of all records: frozen, keyword-only, serialised in declaration order."""

from typing import Any, TypeVar, cast, dataclass_transform

from attrs import evolve, field, frozen

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make `cls` a record.

    No slots: msgspec writes the fields of a slotted attrs class in alphabetical order, but a
    reader of episodes.jsonl wants the id first.
    """
    return frozen(cls, kw_only=True, slots=False)


def replace(record: T, **changes: object) -> T:
    """A copy of the record with these changes."""
    return cast(T, evolve(cast(Any, record), **changes))
