"""Judges what an agent has left in a fresh sandbox, and says what the verdict rests on."""

from ale.judging.judge import Place, had_no_judge, judged
from ale.judging.tools import Scope, named_in

__all__ = ["Place", "Scope", "had_no_judge", "judged", "named_in"]
