"""Notes of people on stored episodes."""

from typing import Literal

from ale.types._record import record

Verdict = Literal["good", "bad"]


@record
class Note:
    """A line of ``notes.jsonl``: what a person says of an episode, or of one of its turns.

    A later line with the same `id` takes its place; one that says nothing withdraws it.
    """

    schema: int = 1
    id: str
    at: float
    """When it was written, in seconds since the epoch. A note from before the episode began is
    about one that had its id earlier."""
    episode: str
    """Id of the episode."""
    turn: int | None = None
    """0-based; None for the whole episode."""
    label: str = ""
    """A short name, to find alike ones by."""
    comment: str = ""
    verdict: Verdict | None = None
    """The person's own, whatever the criteria said."""
    by: str = ""
    """Who wrote it, as they call themselves."""

    @property
    def withdrawn(self) -> bool:
        """Does it say nothing?"""
        return not (self.label or self.comment or self.verdict)
