"""Finds the answer in a model's text; a library.

Every function returns an `Extracted` (what, and from where), or None: nothing is guessed. What
stands before the last ``</think>`` is reasoning, and is left out.
"""

from ale_grading.answers.choices import choice
from ale_grading.answers.claims import corrected
from ale_grading.answers.code import answer_code, code, code_blocks, parsed_python
from ale_grading.answers.extracted import Extracted, without_reasoning
from ale_grading.answers.marked import boxed, last_line, marked
from ale_grading.answers.numbers import final_number, number_value, same_number
from ale_grading.answers.places import messages_of, place_of_answer, read_answer_file

__all__ = [
    "Extracted",
    "answer_code",
    "boxed",
    "choice",
    "code",
    "code_blocks",
    "corrected",
    "final_number",
    "last_line",
    "marked",
    "messages_of",
    "number_value",
    "parsed_python",
    "place_of_answer",
    "read_answer_file",
    "same_number",
    "without_reasoning",
]
