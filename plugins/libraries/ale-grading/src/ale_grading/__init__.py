"""Answers in a model's text, and tests whose verdicts can't be forged; a library."""
