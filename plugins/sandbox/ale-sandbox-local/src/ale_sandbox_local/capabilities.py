"""What is promised on this machine, and what is not."""

from collections.abc import Mapping

from ale.types import Capabilities
from ale_sandbox_local.limits import Facts
from ale_sandbox_process import doctor

NOTES = (
    "network: commands reach whatever the host reaches, its loopback included; only the proxy "
    "variables are gone",
    "files: commands read and write whatever this user may, outside the workspace too",
    "processes: commands see the host's processes and may signal this user's",
    "limits: each process has them for itself; together they may use more, of the disk too",
    "sessions: a session's shell tells how its commands ended, and shell code that runs in it can "
    "make it lie about itself; exec's exit codes come from the kernel",
    "cleaning up: a process that clears its environment and rewrites its own limits can hide",
    "fork: the copy has another path; absolute paths written inside files still name the first",
)
RAISED_NOTE = "root: this user may raise every limit again; run as a normal user"
UNCOUNTED_NOTE = "root: the kernel does not count this user's processes; run as a normal user"


def capabilities_of(facts: Facts) -> Capabilities:
    """What can be promised on this machine."""
    extra: tuple[str, ...] = (RAISED_NOTE,) if facts.raises_limits else ()
    if not facts.counts_processes:
        extra += (UNCOUNTED_NOTE,)
    return Capabilities(
        isolation="process",
        network_isolation=False,
        filesystem_isolation=False,
        process_isolation=False,
        fork="copy",
        snapshot=True,
        images=False,
        limits={
            "cpu": "best-effort",
            "memory": "best-effort",
            "processes": "best-effort" if facts.counts_processes else "none",
            "file_size": "best-effort" if facts.raises_limits else "enforced",
            "disk": "none",
        },
        notes=NOTES + extra,
    )


def in_words(facts: Facts) -> Mapping[str, str]:
    """For ``ale doctor``."""
    return {"isolation": "none", **doctor.in_words(capabilities_of(facts), label="not stopped")}
