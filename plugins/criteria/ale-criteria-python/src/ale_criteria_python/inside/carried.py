"""Names of the answer in a test, and functions of the library that ask about its objects."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ale_criteria_python.inside.remote import Peer

if __name__ != "ale_grading":
    from ale_criteria_python.inside.remote import Remote, ask, has_base


class Scope(dict):  # type: ignore[type-arg]
    """The names of a test. Plain values of the answer are asked for again after each call."""

    def __init__(self, base: dict[str, Any], peer: Peer, names: Sequence[str]) -> None:
        taken = peer.take(names)
        super().__init__({**base, **taken})
        self.peer, self.acts = peer, peer.acts
        self.plain = {name for name, value in taken.items() if type(value) is not Remote}

    def __getitem__(self, name: str) -> Any:
        if name in self.plain and self.acts != self.peer.acts:
            self.acts = self.peer.acts
            self.update(self.peer.take(sorted(self.plain)))
        return super().__getitem__(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.plain.discard(name)
        super().__setitem__(name, value)


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
