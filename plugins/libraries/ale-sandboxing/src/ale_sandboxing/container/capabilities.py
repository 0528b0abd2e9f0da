"""Capabilities of an engine's containers, from the engine's facts and the options."""

import os

from ale.types import Capabilities
from ale_sandboxing.container.engine import Facts
from ale_sandboxing.container.options import ContainerOptions, capabilities_added

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
_SHARED = (
    "shared: the kernel counts inotify instances, pipe buffers, epoll watches and the like by "
    "user; containers of one user share its limits, those of root also with the host's root where "
    "the engine maps no users"
)
_SEGMENTS = (
    "shared memory: System V segments, queues and semaphores outlive their processes, up to the "
    "sandbox's end"
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
            *(("judge",) if _judges(facts, options) else ()),
            *(("service-containers",) if services else ()),
        ),
        notes=tuple(_notes(facts, options)),
    )


def _judges(facts: Facts, options: ContainerOptions) -> bool:
    """Whether a container's changes can be judged in another: its layers are for root to read."""
    is_root = facts.root_is_root and os.geteuid() == 0
    return facts.layered and facts.pauses and is_root and not options.read_only


def bounds_ipc(facts: Facts, options: ContainerOptions) -> bool:
    """Whether containers get the settings of `ale_sandboxing.process.bounds.IPC`.

    Engines that run as root, with their usual runtimes, give them; others need a recent kernel.
    """
    return facts.root_is_root and options.runtime in (None, "runc", "crun")


def _system_writable(options: ContainerOptions) -> bool:
    """Whether commands can replace programs: as root, which images start with."""
    is_root = options.user is None or options.user.partition(":")[0] in ("", "0", "root")
    return not options.read_only and (is_root or options.new_privileges)


def _notes(facts: Facts, options: ContainerOptions) -> list[str]:
    is_root = facts.root_is_root and (options.user is None or options.new_privileges)
    found = {
        _KERNEL: True,
        _DISK: True,
        _SAME_USER: True,
        _SHARED: True,
        _EVADE: True,
        _READ_ONLY: options.read_only,
        _ROOT: is_root,
        _SEGMENTS: not bounds_ipc(facts, options),
        _NEW: options.new_privileges,
        _OPEN: "DAC_OVERRIDE" in capabilities_added(options),
        _NETWORK: options.network is not False,
        _TOGETHER: options.network is not False and not facts.parts,
        _NO_COPIES: not facts.pauses,
        _VOLUMES: facts.pauses and not options.read_only,
        _RULES: facts.seccomp and not facts.filters,
        _SECCOMP: not facts.seccomp,
    }
    return [note for note, holds in found.items() if holds]
