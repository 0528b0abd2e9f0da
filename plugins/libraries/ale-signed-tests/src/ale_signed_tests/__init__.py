"""Runs tests in a sandbox so that the code under test can't forge their verdicts."""

from ale_signed_tests.clean import CLEAN, clean, excerpt, new_scratch, program, remove, variables
from ale_signed_tests.signed import Report, not_begun, run_signed

__all__ = [
    "CLEAN",
    "Report",
    "clean",
    "excerpt",
    "new_scratch",
    "not_begun",
    "program",
    "remove",
    "run_signed",
    "variables",
]
