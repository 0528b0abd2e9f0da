"""Capabilities on this machine, with these options."""

from collections.abc import Mapping

from ale.types import Capabilities
from ale_sandbox_bubblewrap.facts import Facts
from ale_sandbox_bubblewrap.options import BubblewrapOptions
from ale_sandboxing.process import doctor

NOTES = (
    "kernel: the host's own; a vulnerability in it affects the sandbox",
    "network: a task or config that asks for it gets the host's, its loopback and abstract "
    "sockets included",
    "sessions: a session's shell reports the exit codes of its commands, so code that runs in it "
    "can forge them; exec's exit codes come from the kernel",
    "system: /usr is read-only; with writable_system: true, a task may replace programs that later "
    "commands of its sandbox run",
    "time limits: a process that clears its environment and lowers RLIMIT_RSS survives its own "
    "command's time limit, but not end_processes or close",
    "shared: the kernel counts pipe buffers, epoll watches and the like by user: sandboxes of one "
    "user share its limits; of its inotify instances each has at most a quarter",
    "programs: no 32-bit programs on a 64-bit machine, no set-user-id",
)
NO_LAYERS = "fork: by copying, because this machine has no overlay layers"
UNBOUNDED = (
    "shared memory: on this machine System V segments outlive their processes, up to the sandbox's "
    "end, and one sandbox may use up its user's inotify instances"
)
BUSY = (
    "fork: while a process other than an idle session's shell runs, or has a file open for "
    "writing, the sandbox's changes are copied"
)


def has_layers(facts: Facts, options: BubblewrapOptions) -> bool:
    """Overlays are used."""
    return (facts.overlay if options.disk_mb is None else facts.memory) is None


def capabilities_of(facts: Facts, options: BubblewrapOptions) -> Capabilities:
    """The declaration, as the contract kit checks it."""
    layered = has_layers(facts, options) and options.disk_mb is None
    places = facts.cgroups.places
    unbounded = () if facts.bounds is None else (UNBOUNDED,)
    enforced = "pids" in places or facts.counts_processes
    return Capabilities(
        isolation="namespace",
        network_isolation=True,
        filesystem_isolation=True,
        process_isolation=True,
        fork="layer" if layered else "copy",
        snapshot=True,
        images=False,
        features=("judge",) if layered else (),
        limits={
            "cpu": "enforced" if "cpu" in places else "best-effort",
            "memory": "enforced" if "memory" in places else "best-effort",
            "processes": "enforced" if enforced else "best-effort",
            "file_size": "enforced",
            "disk": "none" if options.disk_mb is None else "enforced",
        },
        system_writable=options.writable_system and has_layers(facts, options),
        notes=(*NOTES, *unbounded, BUSY if layered else NO_LAYERS),
    )


def describe(facts: Facts) -> Mapping[str, str]:
    """For ``ale doctor``."""
    layers = "overlayfs" if facts.overlay is None else f"none ({facts.overlay}): copies"
    places = facts.cgroups.places
    groups = f"version {facts.cgroups.version}: {', '.join(sorted(places))}" if places else "none"
    return {
        "layers": layers,
        "control groups": groups,
        **doctor.describe(capabilities_of(facts, BubblewrapOptions()), label="note"),
    }
