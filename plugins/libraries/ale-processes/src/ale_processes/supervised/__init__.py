"""The processes of a launch: started with a log, watched, started again, and ended."""

from ale_processes.supervised.child import Child, Ended, Running
from ale_processes.supervised.supervised import Part, Supervised

__all__ = ["Child", "Ended", "Part", "Running", "Supervised"]
