"""What holds for all tests; plugins/conftest.py has the same for theirs."""

import gc

# Of what tests import and collect nothing is garbage, and the collector traverses it again and
# again: 5 to 40% of the CPU time of a test file.
gc.set_threshold(100_000, 50, 100)


def pytest_collection_finish() -> None:
    """Leave what is there before the first test out of each collection."""
    gc.freeze()
