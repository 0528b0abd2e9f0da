"""Judges what an agent has left in a fresh sandbox, and says what the verdict rests on."""

from ale_grading.judging.judge import Place, judged
from ale_grading.judging.tools import Scope

__all__ = ["Place", "Scope", "judged"]
