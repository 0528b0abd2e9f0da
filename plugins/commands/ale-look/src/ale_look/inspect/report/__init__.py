"""A run, counted and read for the page."""
