"""Judges what an agent has left in a fresh sandbox, and says what the verdict rests on."""

from ale.judging.judge import EVERYTHING, Place, had_no_judge, judged
from ale.judging.memory import InMemory
from ale.judging.opening import opened_judge
from ale.judging.reference import MOST_USED
from ale.judging.tools import Scope, is_below, lost_its_mode, named_in
from ale.judging.upper import Upper
from ale.judging.watch import folder_below

__all__ = [
    "EVERYTHING",
    "MOST_USED",
    "InMemory",
    "Place",
    "Scope",
    "Upper",
    "folder_below",
    "had_no_judge",
    "is_below",
    "judged",
    "lost_its_mode",
    "named_in",
    "opened_judge",
]
