"""Plans sequences of steps with an exact number of commands."""

from collections.abc import Sequence
from typing import NamedTuple

from ale_tasks_shell.contents import FOLDER, GIVEN
from ale_tasks_shell.kind import Kind
from ale_tasks_shell.kinds import KINDS
from ale_tasks_shell.scene import ARCHIVE

_PLACE = {kind.name: i for i, kind in enumerate(KINDS)}


def held_out_pair_of_kinds(first: str, second: str) -> bool:
    """Whether a step of the second kind right after one of the first is held out from training.

    For each kind it is about a fifth of all kinds, as first and as second. It depends on nothing
    but the indices in the table, so that tasks of any seed, count and choice of kinds agree on it.
    """
    return (_PLACE[first] + 3 * _PLACE[second]) % 5 == 0


class State(NamedTuple):
    """Determines which kinds of steps can come next."""

    last: str
    """Kind of the last step; "" before the first."""
    type: str
    """Type of the input of the next step; "" for none."""
    link: bool
    """The input is a symbolic link."""
    source: bool
    """There is a source to delete."""
    owed: bool
    """The sequence still needs a held-out pair of kinds."""


class Move(NamedTuple):
    """A possible next step."""

    kind: Kind
    given: str
    """Type of the input that a first step needs from the start; "" for none."""
    state: State


Choices = tuple[tuple[Move, ...], ...]
"""Moves by kind."""


class Planner:
    """Chooses next steps so that every sequence can reach its length.

    Args:
        kinds: those to use.
        held_out: sequences have at least one held-out pair of adjacent kinds; else none.
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
        """The moves after which a sequence of exactly `commands` commands can be completed."""
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
        if state.last and held_out_pair_of_kinds(state.last, kind.name):
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
    # Only files of the start are spared: deleting the output of a step would undo the step.
    source = kind.spares if not state.last else state.source
    return State(kind.name, made, link=kind.name == "link", source=source, owed=owed)


def _can_be_given(type_: str) -> bool:
    return type_ == FOLDER or type_.removesuffix(ARCHIVE) in GIVEN
