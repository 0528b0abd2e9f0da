"""Builds the plan and limits of a sandbox from options and machine features."""

import resource
import shutil
from collections.abc import Sequence
from pathlib import Path

from ale.types import SandboxSpec
from ale_sandbox_bubblewrap import base, layers
from ale_sandbox_bubblewrap.capabilities import has_layers
from ale_sandbox_bubblewrap.cgroups import Wanted
from ale_sandbox_bubblewrap.facts import Facts
from ale_sandbox_bubblewrap.launch import Plan
from ale_sandbox_bubblewrap.options import BubblewrapOptions
from ale_sandboxing.process.limits import MIB, clamp, commands

_SHM_BYTES = 64 << 20
_OWN_PROCESSES = 2
"""Processes of each sandbox that are not commands: supervisor and first process."""


def plan(options: BubblewrapOptions, facts: Facts) -> Plan:
    """What is the same for every sandbox of a backend."""
    system = base.system_folders()
    overlay = has_layers(facts, options)
    writable = system if overlay and options.writable_system else []
    found = {name: shutil.which(name, path=base.PATH) for name in ("sh", "bash", "sleep")}
    return Plan(
        bwrap=facts.bwrap,
        layout=layers.Layout(
            overlay=overlay,
            system=writable,
            place=layers.LAYERS if options.disk_mb is None else layers.IN_MEMORY,
        ),
        bound=[f"/{name}" for name in system if name not in writable] + _mounts_below(system),
        read_only=[str(path) for path in options.allowlist_paths],
        programs={name: path for name, path in found.items() if path is not None},
        shm_bytes=_SHM_BYTES,
        disk_bytes=None if options.disk_mb is None else options.disk_mb * MIB,
        bounded=facts.bounds is None,
    )


def _mounts_below(system: Sequence[str]) -> list[str]:
    """A layer shows one file system; mounts inside a system folder are bound separately."""
    tops = tuple(f"/{name}/" for name in system)
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted({path for line in lines if (path := line.split()[4]).startswith(tops)})


def _memory(options: BubblewrapOptions, spec: SandboxSpec) -> int | None:
    memory = spec.memory_mb or options.memory_mb
    return None if memory is None else memory * MIB


def _processes(options: BubblewrapOptions) -> int | None:
    return None if options.processes is None else options.processes + _OWN_PROCESSES


def wanted(options: BubblewrapOptions, facts: Facts, spec: SandboxSpec) -> Wanted:
    """Limits of one sandbox, for control groups.

    Processes only where the kernel does not count those of each sandbox without a group.
    """
    return Wanted(
        memory_bytes=_memory(options, spec),
        processes=None if facts.counts_processes else _processes(options),
        cpus=spec.cpus or options.cpus,
    )


def rlimits(options: BubblewrapOptions, facts: Facts, spec: SandboxSpec) -> dict[str, int]:
    """Limits that each process of a sandbox inherits, by name.

    Memory and processes only where no control group counts them for the whole sandbox.
    """
    memory, processes = _memory(options, spec), _processes(options)
    limits = {"RLIMIT_CORE": 0}
    if options.file_size_mb is not None:
        limits["RLIMIT_FSIZE"] = options.file_size_mb * MIB
    if memory is not None and "memory" not in facts.cgroups.places:
        limits["RLIMIT_DATA"] = memory
    if processes is not None and (facts.counts_processes or "pids" not in facts.cgroups.places):
        limits["RLIMIT_NPROC"] = processes
    return {name: clamp(value, getattr(resource, name)) for name, value in limits.items()}


def ulimits(options: BubblewrapOptions) -> str:
    """Limits that the supervisor itself must not have, as shell commands."""
    lines = commands(cpu_s=options.cpu_s, open_files=options.open_files)
    return "".join(f"{line};" for line in lines)
