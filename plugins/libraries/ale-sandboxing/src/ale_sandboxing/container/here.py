"""Whether a process of a container is one of this machine's, as seen from here."""

from pathlib import Path


def is_here(pid: int, container: str) -> bool:
    """Is the process that an engine gives this number to the one that has it here?

    It is not where the engine runs on another machine, in a virtual one, or where this process is
    in a container itself.

    Args:
        container: id of the container, which its control group is named after.
    """
    try:
        return pid > 0 and container in Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False
