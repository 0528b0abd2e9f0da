"""Whether a process of a container is one of this machine's, as seen from here."""

from pathlib import Path


def is_here(pid: int, container: str) -> bool:
    """Is the process that an engine gives this number to the one that has it here?

    It is not where the engine runs on another machine, in a virtual one, or where this process is
    in a container itself.

    Args:
        container: its id. The process's control group is named after it; where a rootless engine
            has none, folders that are mounted in it are.
    """
    return pid > 0 and any(container in _read(pid, name) for name in ("cgroup", "mountinfo"))


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""
