"""Names of starts inside an expert's episode."""

import re

from attrs import frozen

_NAME = re.compile(r"p([1-9][0-9]*)of([1-9][0-9]*)(?:\.([0-9a-f]+))?")


@frozen
class Place:
    """A start inside an expert's episode: after the first `p` of its `turns` turns."""

    p: int
    turns: int
    """K, the turns of the expert's whole episode."""
    tag: str = ""
    """Distinguishes experts of one task; empty if a run has one fixed expert per task."""

    @property
    def name(self) -> str:
        """``p3of7``, ``p3of7.5d0f11``; empty for the task's own beginning."""
        if self.p == 0:
            return ""
        return f"p{self.p}of{self.turns}" + (f".{self.tag}" if self.tag else "")


def place_named(name: str) -> Place | None:
    """Parse a start's name; None if it is not a name of this form."""
    found = _NAME.fullmatch(name)
    return None if found is None else Place(int(found[1]), int(found[2]), found[3] or "")
