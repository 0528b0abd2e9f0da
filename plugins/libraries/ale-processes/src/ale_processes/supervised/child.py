"""A process: a subprocess of this machine, or what a launcher has started elsewhere."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from attrs import frozen

_BECOME = Path(__file__).with_name("become.py")


@frozen
class Ended:
    """How a process ended."""

    code: int
    """Negative: the number of the signal that killed it."""
    how: str = ""
    """In place of the words for `code`."""

    @property
    def status(self) -> int:
        """As of a shell: 128 + n for the signal n."""
        return self.code if self.code >= 0 else 128 - self.code

    def __str__(self) -> str:
        if self.how:
            return self.how
        if self.code >= 0:
            return f"ended with status {self.code}"
        return f"was killed by {signal.Signals(-self.code).name}"


class Running(Protocol):
    """A process that was started."""

    async def wait(self) -> Ended:
        """Until it has ended, and nothing of it is left. May be called more than once."""
        ...

    async def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        ...

    async def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL for all of it so many seconds later; returns when it has ended."""
        ...


def _nobody() -> int | None:
    return None


@frozen(eq=False)
class Child:
    """A subprocess in a session of its own."""

    _process: asyncio.subprocess.Process
    _target: Callable[[], int | None]

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        log: Path,
        cores: Sequence[int] = (),
        target: Callable[[], int | None] = _nobody,
        on_death: signal.Signals = signal.SIGTERM,
    ) -> "Child":
        """Start it.

        Args:
            environ: all its variables.
            log: its output is appended.
            cores: CPU cores that it may use; none: any.
            target: id of the process that signals go to; None, or that of none: its own.
            on_death: what the kernel sends it when this process dies.

        Raises:
            OSError: it can't be started, or the log can't be written.
        """
        which = ",".join(map(str, cores)) or "-"
        become = (sys.executable, "-I", str(_BECOME), str(os.getpid()), str(int(on_death)), which)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *become,
                *command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environ,
                start_new_session=True,  # Ctrl-C of the terminal reaches the launcher alone
            )
        return cls(process, target)

    async def wait(self) -> Ended:
        """See `Running`."""
        code = await self._process.wait()
        self._kill_group()
        return Ended(code)

    async def send(self, number: signal.Signals) -> None:
        """See `Running`."""
        for pid in (self._target(), self._process.pid):
            with suppress(ProcessLookupError):
                if pid is not None:
                    os.kill(pid, number)
                    return

    async def end(self, grace_s: float) -> None:
        """See `Running`."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), grace_s)
        self._kill_group()
        await self._process.wait()

    def _kill_group(self) -> None:
        """Kill what it has left in its session."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
