"""Which kinds of steps follow each other: sequences of an exact number of commands."""

from collections.abc import Sequence
from typing import NamedTuple

from ale_tasks_shell.contents import FOLDER, GIVEN
from ale_tasks_shell.kind import Kind
from ale_tasks_shell.kinds import KINDS
from ale_tasks_shell.scene import ARCHIVE

_PLACE = {kind.name: i for i, kind in enumerate(KINDS)}


def held_out_neighbours(first: str, second: str) -> bool:
    """Is it one that training never has: a step of the second kind right after one of the first?

    For each kind it is about a fifth of all kinds, as first and as second. It depends on nothing
    but the places in the table, so that tasks of any seed, count and choice of kinds agree on it.
    """
    return (_PLACE[first] + 3 * _PLACE[second]) % 5 == 0


class State(NamedTuple):
    """All that decides which kinds of steps can come next."""

    last: str
    """Kind of the last step; "" before the first."""
    type: str
    """Type of what the next step works on; "" for nothing."""
    link: bool
    """It is a symbolic link."""
    source: bool
    """There is a source to delete."""
    owed: bool
    """The sequence still needs a pair of neighbours that training never has."""


class Move(NamedTuple):
    """One way to go on."""

    kind: Kind
    given: str
    """Type of what is given from the start for a first step to work on; "" for nothing."""
    state: State


Choices = tuple[tuple[Move, ...], ...]
"""Moves by kind."""


class Planner:
    """Says how to go on so that a sequence never gets stuck before its length.

    Args:
        kinds: those to use.
        held_out: sequences have at least one pair of neighbours that training never has; else,
            none.
    """

    def __init__(self, kinds: Sequence[Kind], *, held_out: bool) -> None:
        self._kinds = kinds
        self._held_out = held_out
        self._known: dict[tuple[State, int], Choices] = {}

    @property
    def start(self) -> State:
        """Before the first step."""
        return State("", "", link=False, source=False, owed=self._held_out)

    def choices(self, state: State, commands: int) -> Choices:
        """The moves after which the rest of `commands` can be filled to the last; none if none."""
        known = self._known.get((state, commands))
        if known is None:
            moves = [
                self._moves(kind, state, commands - len(kind.commands)) for kind in self._kinds
            ]
            known = self._known[state, commands] = tuple(found for found in moves if found)
        return known

    def _moves(self, kind: Kind, state: State, left: int) -> tuple[Move, ...]:
        if left < 0:
            return ()
        owed = state.owed
        if state.last and held_out_neighbours(state.last, kind.name):
            if not self._held_out:
                return ()
            owed = False
        return tuple(move for move in _next(kind, state, owed=owed) if self._ends(move.state, left))

    def _ends(self, state: State, left: int) -> bool:
        if left == 0:
            return not state.owed
        return bool(self.choices(state, left))


def _next(kind: Kind, state: State, *, owed: bool) -> list[Move]:
    if state.link and not (kind.reads or kind.deletes_source):
        return []
    if state.last:
        if not state.type or (kind.deletes_source and not state.source):
            return []
        types = [state.type]
    elif "" in kind.becomes:
        types = [""]
    else:
        types = [type_ for type_ in kind.becomes if _can_be_given(type_)]
    return [
        Move(kind, "" if state.last else type_, _after(kind, state, type_, made, owed=owed))
        for type_ in types
        for made in kind.becomes.get(type_, ())
    ]


def _after(kind: Kind, state: State, type_: str, made: str, *, owed: bool) -> State:
    if kind.deletes_source:
        return State(kind.name, made, link=state.link, source=False, owed=owed)
    # Only what was given is spared: to delete what a step made would undo the step.
    source = kind.spares if not state.last else state.source
    return State(kind.name, made, link=kind.name == "link", source=source, owed=owed)


def _can_be_given(type_: str) -> bool:
    return type_ == FOLDER or type_.removesuffix(ARCHIVE) in GIVEN
