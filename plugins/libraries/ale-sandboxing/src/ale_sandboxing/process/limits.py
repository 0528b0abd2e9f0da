"""Limits as ``ulimit`` commands: the shell sets them itself, no code runs between fork and exec."""

import resource

MIB = 1 << 20
_GRACE_S = 2
"""Between SIGXCPU and SIGKILL."""


def clamp(wanted: int, which: int) -> int:
    """A limit that may be set: no more than what the host's own hard limit leaves.

    Args:
        which: a constant ``resource.RLIMIT_...``.
    """
    hard_kib = resource.getrlimit(which)[1]
    return wanted if hard_kib == resource.RLIM_INFINITY else min(wanted, hard_kib)


def commands(*, cpu_s: int | None, open_files: int | None) -> list[str]:
    """Shell commands for the two limits that every shell names alike; None sets none.

    Args:
        cpu_s: seconds of each process: SIGXCPU there, SIGKILL two seconds later.
        open_files: of each process.
    """
    lines = []
    if cpu_s is not None:
        lines.append(f"ulimit -t {clamp(cpu_s + _GRACE_S, resource.RLIMIT_CPU)}")
        lines.append(f"ulimit -St {clamp(cpu_s, resource.RLIMIT_CPU)}")
    if open_files is not None:
        lines.append(f"ulimit -n {clamp(open_files, resource.RLIMIT_NOFILE)}")
    return lines
