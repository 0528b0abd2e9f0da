"""Surroundings that tests replace, set and capture in their process; the answer has the same."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any


class NotSupportedError(BaseException):
    """The tests do what can't be done across two processes; the task is wrong, not the answer."""


class Surroundings:
    """What tests replace in their process, and the answer is to use in its own."""

    def __init__(self, names: Sequence[str], watched: Collection[str] = ()) -> None:
        self.streams = [(name, getattr(sys, name)) for name in ("stdin", "stdout", "stderr")]
        self.functions = [(name, *found) for name in names if (found := library(name))]
        self.seeded = "random.seed" in names
        self.watched = watched
        self.start: Any = (dict(os.environ), here())
        self.environment, self.folder = self.start
        """As the answer has them; watched only if tests may set them."""
        self.state: Any = None
        """Of `random`, as the answer was last given it; None if the tests have set it since."""
        self.forwarded: dict[str, Any] = {}
        """Functions that a fresh process of the answer is given once."""
        if self.seeded:
            import random

            for name in ("seed", "setstate"):
                setattr(random, name, self.noting(getattr(random, name)))

    def noting(self, function: Callable[..., None]) -> Callable[..., None]:
        """The function, after which the answer is given the state of `random` again."""

        def noted(*arguments: Any, **options: Any) -> None:
            self.state = None
            function(*arguments, **options)

        return noted

    def begin(self) -> None:
        """A fresh process of the answer has the variables and the folder of the start."""
        self.environment, self.folder = self.start
        self.forwarded = {name: FORWARDED[name] for name in FORWARDED if name in self.watched}

    def note_place(self, given: dict[str, Any]) -> None:
        """Add variables and the folder, where tests have set them."""
        if "environment" in self.watched and (now := dict(os.environ)) != self.environment:
            changed = {name: now.get(name) for name in {*now, *self.environment}}
            given["environment"] = {
                name: value
                for name, value in changed.items()
                if value != self.environment.get(name)
            }
            self.environment = now
        if "folder" in self.watched and (folder := here()) != self.folder:
            given["folder"] = folder if folder != self.start[1] else ""
            self.folder = folder

    def now(self) -> dict[str, Any]:
        """By name, what is replaced now.

        Raises:
            NotSupportedError: it is no function.
        """
        given = {}
        for name, before in self.streams:
            stream = getattr(sys, name)
            if stream is not before:
                given["sys." + name] = stream.readline if name == "stdin" else stream.write
        if self.seeded:
            import random

            if self.state != (state := random.getstate()):
                given["random"] = self.state = state
        self.note_place(given)
        given.update(self.forwarded)
        self.forwarded = {}
        for name, owner, before in self.functions:
            value = getattr(owner, name.rpartition(".")[2], before)
            if value is not before:
                if isinstance(before, type) or not (callable(before) and callable(value)):
                    raise NotSupportedError(f"the tests replace {name}, which is no function")
                given[name] = value
        return given


def here() -> str:
    """The current folder; empty if it was removed."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


def library(name: str) -> Any:
    """The module and the function of a name; None where there are none."""
    module, _, attribute = name.rpartition(".")
    try:
        owner = __import__(module, None, None, ["*"])
        return (owner, getattr(owner, attribute))
    except (ImportError, AttributeError):
        return None


def warned(kind: Any, arguments: Sequence[Any]) -> None:
    """A warning of the answer, here, where tests record it or make it an error."""
    import warnings

    known = isinstance(kind, type) and issubclass(kind, Warning)
    own: Any = kind if known else UserWarning
    warnings.warn_explicit(own(*arguments), own, "<answer>", 1, "answer")


def logged(name: str, own_level: int, level: int, text: str) -> None:
    """A log record of the answer, here, where tests have their handlers and levels."""
    import logging

    logger = logging.getLogger(None if name == "root" else name)
    is_set = own_level and not logger.level
    if level >= own_level if is_set else logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(name, level, "<answer>", 1, text, (), None))


FORWARDED: dict[str, Any] = {"warnings": warned, "logs": logged}
