"""The processes of a launch: started with a log, watched, started again, and ended."""

from ale_supervised.child import Child, Ended, Running
from ale_supervised.supervised import Part, Supervised

__all__ = ["Child", "Ended", "Part", "Running", "Supervised"]
