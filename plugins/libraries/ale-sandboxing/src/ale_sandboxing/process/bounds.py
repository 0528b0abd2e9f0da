"""Bounds on what the kernel keeps for processes and charges to none. Standard library only."""

IPC = {
    # A segment of shared memory goes with the last process that has it attached; what an ended one
    # leaves would be paid by the next command.
    "kernel.shm_rmid_forced": "1",
    # Queues and semaphores stay until their namespace ends, so there may be only a few megabytes.
    "kernel.msgmni": "32",
    "kernel.sem": "250 32000 100 128",
}
"""Settings of an IPC namespace, by their names for ``sysctl``."""
