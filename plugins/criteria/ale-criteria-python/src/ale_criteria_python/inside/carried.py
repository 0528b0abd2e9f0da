"""Functions of the library that ask about objects of the answer where these are."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

if __name__ != "ale_grading":
    from ale_criteria_python.inside.remote import Remote, ask, has_base


def carry_dataclasses() -> None:
    """Have functions of `dataclasses` ask the answer about objects of its own."""
    import dataclasses

    for name in ("asdict", "astuple", "fields", "is_dataclass", "replace"):
        setattr(dataclasses, name, carried(name, getattr(dataclasses, name)))


def carried(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose work is done where its first argument is."""

    def work(value: Any, *arguments: Any, **options: Any) -> Any:
        if type(value) is Remote:
            return ask(value, name, *arguments, **options)
        return function(value, *arguments, **options)

    return work


def carry_abstract_classes() -> None:
    """Have `isinstance` with an abstract class of the library ask about objects of the answer."""
    import abc

    def check(kind: Any, value: Any, own: Any = abc.ABCMeta.__instancecheck__) -> bool:
        if type(value) is not Remote or has_base(value):
            return bool(own(kind, value))
        of_library = kind.__module__ in ("collections.abc", "numbers", "typing", "io")
        return of_library and ask(value, "abstract", kind.__module__, kind.__name__) is True

    abc.ABCMeta.__instancecheck__ = check  # type: ignore[method-assign]
