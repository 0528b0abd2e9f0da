"""Grading criteria that look at what an agent left behind, and do not believe it."""
