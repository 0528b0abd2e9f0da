"""Repositories as tasks, in the format of SWE-bench, and the criterion that grades them."""
