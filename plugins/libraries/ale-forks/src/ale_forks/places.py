"""Places in an expert's episode: the name of a start says where its rollouts began."""

import re

from attrs import frozen

_NAME = re.compile(r"p([1-9][0-9]*)of([1-9][0-9]*)(?:\.([0-9a-f]+))?")


@frozen
class Place:
    """A place in an expert's episode: after its first `p` turns of `turns`."""

    p: int
    turns: int
    """K, the turns of the expert's whole episode."""
    tag: str = ""
    """Tells experts of one task apart; empty where a run has one expert per task for good."""

    @property
    def name(self) -> str:
        """``p3of7``, ``p3of7.5d0f11``; empty for the task's own beginning."""
        if self.p == 0:
            return ""
        return f"p{self.p}of{self.turns}" + (f".{self.tag}" if self.tag else "")


def place_named(name: str) -> Place | None:
    """The place that a start's name stands for; None where it is no name of this package's."""
    found = _NAME.fullmatch(name)
    return None if found is None else Place(int(found[1]), int(found[2]), found[3] or "")
