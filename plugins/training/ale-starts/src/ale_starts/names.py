"""Names of starts that are not inside an expert's episode; for those see `ale_forks.Place`."""

DEMONSTRATION = "demo"
"""Name of a start in which the expert takes every turn."""
