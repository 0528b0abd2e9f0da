"""Collect the problems of several parts, to raise them all at once."""

from collections.abc import Callable
from typing import Any

from ale.errors import InputError, Problem


class Problems:
    """The problems found so far."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def collect(self, make: Callable[[], Any]) -> Any:
        """The result of `make`; None if it raises an `InputError`, whose problems are kept."""
        try:
            return make()
        except InputError as error:
            self.found += error.problems
            return None

    def raise_all(self) -> None:
        """Raise an `InputError` if there are any."""
        if self.found:
            raise InputError(self.found)
