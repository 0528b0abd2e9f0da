"""Runs tests in a sandbox so that the code under test can't forge their verdicts."""

from ale_grading.signed_tests.clean import (
    CLEAN,
    by_clock,
    clean,
    excerpt,
    new_scratch,
    program,
    remove,
    variables,
)
from ale_grading.signed_tests.lines import inverts, lacking_of_line, needs
from ale_grading.signed_tests.signed import Report, not_begun, run_signed
from ale_grading.signed_tests.tools import Look, needed_modules

__all__ = [
    "CLEAN",
    "Look",
    "Report",
    "by_clock",
    "clean",
    "excerpt",
    "inverts",
    "lacking_of_line",
    "needed_modules",
    "needs",
    "new_scratch",
    "not_begun",
    "program",
    "remove",
    "run_signed",
    "variables",
]
