"""What a network does to calls costs time, and nothing else."""

from ale_sandboxing.remote.testing.faults import FaultProbes


class TestFaults(FaultProbes):
    image = None
