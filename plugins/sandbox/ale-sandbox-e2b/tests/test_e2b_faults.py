"""What a network does to calls costs time, and nothing else."""

from ale_sandbox_remote.testing.faults import FaultProbes


class TestFaults(FaultProbes):
    image = None
