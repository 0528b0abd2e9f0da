"""What starts are called that are no place in an expert's episode: see `ale_forks.Place`."""

DEMONSTRATION = "demo"
"""Of a start in which an expert speaks to the end."""
