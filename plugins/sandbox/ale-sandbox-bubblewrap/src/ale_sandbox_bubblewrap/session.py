"""A session that can move with its sandbox to a new layer."""

import asyncio
import os
import shlex
from collections.abc import Callable

from ale_sandbox_bubblewrap.client import Job
from ale_sandboxing.process.shell import HostShell
from ale_sandboxing.shell.session import ShellSession
from ale_sandboxing.shell.text import as_bytes


class BubblewrapSession(ShellSession):
    """A shell in the sandbox. It may be run but not read, so that its memory, which holds the
    names of the host's pipes, is closed to every other process.
    """

    def __init__(
        self,
        shell: HostShell,
        job: Job,
        gate: asyncio.Lock,
        *,
        bash: bool,
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(
            shell, resets_lines=bash, monotonic=monotonic, gate=gate, note=lambda: job.note
        )
        self._job = job

    @property
    def started(self) -> bool:
        """Its shell has been started."""
        return self._job.pid is not None

    def folder(self) -> str | None:
        """Its current folder, as a path in the sandbox; None: it has been removed."""
        path = os.readlink(f"/proc/{self._job.pid}/cwd")  # noqa: PTH115
        return None if path.endswith(" (deleted)") else path

    def enter(self, folder: str) -> None:
        """Make it enter its current folder again: the old one is of the old layer."""
        real = as_bytes(shlex.quote(folder))
        self._shell.send(
            b"{ __ale=${OLDPWD-};"
            b'command [ "${PWD-}" -ef %b ] && command cd -L -- "$PWD" || command cd -P -- %b;'
            b"OLDPWD=$__ale; unset __ale; } >/dev/null 2>&1 || :\n" % (real, real)
        )
