"""Capabilities on this machine, and what is not isolated."""

from collections.abc import Mapping

from ale.types import Capabilities
from ale_sandbox_local.limits import Facts
from ale_sandboxing.process import doctor

NOTES = (
    "network: not isolated, also with network: false; commands reach what the host reaches, its "
    "loopback included; only the proxy variables are removed",
    "files: not isolated; commands read and write all files of this user, also outside the "
    "workspace",
    "processes: not isolated; commands see the host's processes, can signal this user's and read "
    "their environments, this program's and its keys included",
    "limits: for each process, not for the sandbox as a whole; disk space is not limited",
    "sessions: a session's shell reports the exit codes of its commands, so code that runs in it "
    "can forge them; exec's exit codes come from the kernel",
    "cleaning up: a process that clears its environment and changes its own limits is not found",
    "shared memory: System V segments, queues and semaphores are the user's own, and outlive the "
    "sandbox",
    "fork: the copy has another path; absolute paths written inside files still name the original",
)
RAISED_NOTE = "root: this user can raise every limit again; run as a normal user"
UNCOUNTED_NOTE = "root: the kernel does not count this user's processes; run as a normal user"


def capabilities_of(facts: Facts) -> Capabilities:
    """Capabilities on this machine."""
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
        features=("scratch-folder",),
        limits={
            "cpu": "best-effort",
            "memory": "best-effort",
            "processes": "best-effort" if facts.counts_processes else "none",
            "file_size": "best-effort" if facts.raises_limits else "enforced",
            "disk": "none",
        },
        notes=NOTES + extra,
    )


def describe(facts: Facts) -> Mapping[str, str]:
    """For ``ale doctor``."""
    return doctor.describe(capabilities_of(facts), label="not isolated")
