"""Capabilities of an engine's containers, from the engine's facts and the options."""

from ale.types import Capabilities
from ale_sandbox_container.engine import Facts
from ale_sandbox_container.options import ContainerOptions, capabilities_added

_DISK = "disk: writes are limited per file, not in total"
_KERNEL = "kernel: it is the host's; a vulnerability in it allows an escape"
_ROOT = (
    "root: root in a container is root on the host, without capabilities that were not added; "
    "set sandbox.user"
)
_NEW = (
    "privileges: a command of any user may become the container's root by a setuid program of the "
    "image (new_privileges)"
)
_SAME_USER = (
    "same user: what a command leaves running may kill or trace later commands of its user; "
    "end_processes ends it"
)
_EVADE = (
    "timeouts: a process that lowers its own RLIMIT_RSS outlives the timeout of its command, and "
    "may write into the output of later ones; it does not outlive end_processes or the sandbox"
)
_READ_ONLY = "read_only: root may also write to the container's /dev, which is in memory"
_OPEN = (
    "supervisor: other processes of its user can read its memory and forge exit codes, because "
    "DAC_OVERRIDE lets root read every file"
)
_NETWORK = "network: where it is on, the host's own addresses and the metadata address are reached"
_TOGETHER = (
    "network: containers that have one reach each other, because the kernel filters nothing that "
    "is bridged (modprobe br_netfilter)"
)
_VOLUMES = "fork: volumes that the image declares are not copied"
_NO_COPIES = (
    "fork: the engine can't pause a container, as a normal user's engine with version 1 of control "
    "groups; commands are run again instead"
)
_SECCOMP = "system calls: the engine filters none (no seccomp)"
_RULES = (
    "system calls: those that the engine's own list refuses, because it does not see the files of "
    "this machine; a command may make user namespaces, with every capability inside them, and "
    "sockets that no namespace confines (AF_VSOCK)"
)


def capabilities_of(
    facts: Facts, options: ContainerOptions, *, services: bool = False
) -> Capabilities:
    """Capabilities, with their gaps in `notes`.

    Args:
        services: docker compose can be used with the engine.
    """
    memory = facts.holds_memory and options.memory_mb is not None
    processes = facts.holds_processes and options.processes is not None
    cpu = options.cpu_s is not None or (facts.holds_cpu and options.cpus is not None)
    copies = facts.pauses and not options.read_only
    return Capabilities(
        isolation="container",
        network_isolation=options.network is not True,
        filesystem_isolation=True,
        process_isolation=True,
        fork="layer" if copies else "replay",
        snapshot=copies,
        images=True,
        limits={
            "cpu": "enforced" if cpu else "none",
            "memory": "enforced" if memory else "none",
            "processes": "enforced" if processes else "none",
            "file_size": "none" if options.file_size_mb is None else "enforced",
            "disk": "none",
        },
        system_writable=_system_writable(options),
        features=(
            *("agent-user", "change-network", "list-sessions", "open-sibling", "switch-user"),
            *(("service-containers",) if services else ()),
        ),
        notes=tuple(_notes(facts, options)),
    )


def _system_writable(options: ContainerOptions) -> bool:
    """Whether commands can replace programs: as root, which images start with."""
    is_root = options.user is None or options.user.partition(":")[0] in ("", "0", "root")
    return not options.read_only and (is_root or options.new_privileges)


def _notes(facts: Facts, options: ContainerOptions) -> list[str]:
    notes = [_KERNEL, _DISK, _SAME_USER, _EVADE, *([_READ_ONLY] if options.read_only else [])]
    if facts.root_is_root and (options.user is None or options.new_privileges):
        notes.append(_ROOT)
    if options.new_privileges:
        notes.append(_NEW)
    if "DAC_OVERRIDE" in capabilities_added(options):
        notes.append(_OPEN)
    if options.network is not False:
        notes += [_NETWORK] if facts.parts else [_NETWORK, _TOGETHER]
    if not facts.pauses:
        notes.append(_NO_COPIES)
    elif not options.read_only:
        notes.append(_VOLUMES)
    if not facts.filters:
        notes.append(_RULES if facts.seccomp else _SECCOMP)
    return notes
