"""Limits as ``ulimit`` lines, set by the shell itself: no code runs between fork and exec."""

import contextlib
import os
import resource
import subprocess
from pathlib import Path

from attrs import frozen

from ale.errors import SandboxError
from ale_sandbox_local.options import LocalOptions
from ale_sandbox_process.limits import MIB, clamp, commands


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


@frozen(kw_only=True)
class Rlimits:
    """What each process of a sandbox may use, never above what the host's own limits leave.

    Attributes:
        cpu_s: seconds. SIGXCPU there, SIGKILL two seconds later.
        data_bytes: RLIMIT_DATA: private writable memory. Not the address space, because many
            programs (Go, Java, JavaScript engines) reserve far more of that than they use.
        processes: RLIMIT_NPROC, counted by the kernel over all processes of the user.
        file_bytes: of each file.
        open_files: of each process.
    """

    cpu_s: int | None
    data_bytes: int | None
    processes: int | None
    file_bytes: int | None
    open_files: int | None

    def script(self, dialect: Dialect) -> str:
        """Shell commands, separated by ``;``, that set the limits; each ends in ``;``."""
        lines = ["ulimit -c 0", *commands(cpu_s=self.cpu_s, open_files=self.open_files)]
        if self.data_bytes is not None:
            lines.append(f"ulimit -d {clamp(self.data_bytes, resource.RLIMIT_DATA) // 1024}")
        if self.processes is not None:
            count = clamp(self.processes, resource.RLIMIT_NPROC)
            lines.append(f"ulimit {dialect.processes} {count}")
        if self.file_bytes is not None:
            size = clamp(self.file_bytes, resource.RLIMIT_FSIZE)
            lines.append(f"ulimit -f {size // dialect.block}")
        return "".join(f"{line};" for line in lines)


def rlimits(options: LocalOptions, *, memory_mb: int | None, processes: int) -> Rlimits:
    """The limits of one sandbox.

    Args:
        memory_mb: the task's value, which overrides the option.
        processes: the user's processes and threads in all; only where the option asks for it.
    """
    memory = options.memory_mb if memory_mb is None else memory_mb
    return Rlimits(
        cpu_s=options.cpu_s,
        data_bytes=None if memory is None else memory * MIB,
        processes=None if options.processes is None else processes,
        file_bytes=None if options.file_size_mb is None else options.file_size_mb * MIB,
        open_files=options.open_files,
    )


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
