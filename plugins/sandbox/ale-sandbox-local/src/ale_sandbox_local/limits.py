"""Limits as ``ulimit`` lines, set by the shell itself: no code runs between fork and exec."""

import contextlib
import os
import resource
import subprocess
from pathlib import Path

from attrs import frozen

from ale.errors import SandboxError
from ale_sandbox_local.options import LocalOptions
from ale_sandboxing.process.limits import MIB, clamp, commands


@frozen(kw_only=True)
class Dialect:
    """How a shell's ``ulimit`` names what POSIX leaves open."""

    processes: str
    """Flag for the number of processes: ``-u`` in bash, ``-p`` in dash and ash."""
    block: int
    """Bytes in a unit of ``-f``."""


BASH = Dialect(processes="-u", block=1024)


@frozen(kw_only=True)
class Facts:
    """What a POSIX shell and this user can do with limits, found by trying."""

    dialect: Dialect
    raises_limits: bool
    """A process may raise a limit that was put on it."""
    counts_processes: bool
    """The limit on processes is enforced for this user."""


def facts_of(shell: str) -> Facts:
    """Try them; takes a few milliseconds."""

    def works(script: str) -> bool:
        tried = subprocess.run([shell, "-c", script], capture_output=True, check=False)
        return tried.returncode == 0

    # The unit of -f is 512 bytes in every POSIX shell.
    dialect = Dialect(processes="-u" if works("ulimit -u") else "-p", block=512)
    return Facts(
        dialect=dialect,
        raises_limits=works("ulimit -f 1000; ulimit -f 2000"),
        counts_processes=not works(f"ulimit {dialect.processes} 1; (exit 0) & wait $!"),
    )


def script(options: LocalOptions, dialect: Dialect, memory_mb: int | None, processes: int) -> str:
    """Shell commands that set the limits of each process; each ends in ``;``.

    None is above what the host's own limits leave. Memory is RLIMIT_DATA, private writable memory,
    not the address space: many programs (Go, Java, JavaScript engines) reserve far more of that
    than they use.

    Args:
        memory_mb: the task's value, which overrides the option.
        processes: the user's processes and threads in all; only where the option asks for it.
    """
    lines = ["ulimit -c 0", *commands(cpu_s=options.cpu_s, open_files=options.open_files)]
    memory_mb = options.memory_mb if memory_mb is None else memory_mb
    if memory_mb is not None:
        lines.append(f"ulimit -d {clamp(memory_mb * MIB, resource.RLIMIT_DATA) // 1024}")
    if options.processes is not None:
        lines.append(f"ulimit {dialect.processes} {clamp(processes, resource.RLIMIT_NPROC)}")
    if options.file_size_mb is not None:
        size = clamp(options.file_size_mb * MIB, resource.RLIMIT_FSIZE)
        lines.append(f"ulimit -f {size // dialect.block}")
    return "".join(f"{line};" for line in lines)


def tasks_now() -> int:
    """Processes and threads of this user, as the kernel counts them for RLIMIT_NPROC."""
    uid, count = os.getuid(), 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
                if Path(f"/proc/{name}").stat().st_uid == uid:
                    count += Path(f"/proc/{name}/task").stat().st_nlink - 2
    return count


def check(script: str) -> None:
    """Run the limits once in ``sh``.

    Raises:
        SandboxError: the shell could not set one of them; commands would run without it.
    """
    tried = subprocess.run(["/bin/sh", "-c", script + ":"], capture_output=True, check=False)
    if tried.returncode or tried.stderr:
        output = tried.stderr.decode(errors="replace").strip()
        raise SandboxError(f"/bin/sh can't set the limits: {output or tried.returncode}")
