"""Judges what an agent has left in a fresh sandbox, and says what the verdict rests on."""

from ale.judging.judge import Place, judged
from ale.judging.tools import Scope, named_in

__all__ = ["Place", "Scope", "judged", "named_in"]
