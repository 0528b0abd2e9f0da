"""What stands in a run, counted and read for the page."""
