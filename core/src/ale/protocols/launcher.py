"""Launchers: where the processes of a run are started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from attrs import field, frozen

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

Role = Literal["run", "server", "worker"]
"""``run`` samples and trains: `ale run`, with the ranks of its trainer. ``server`` serves a model
to the run, and ``worker`` executes episodes for it."""

LOGS = "logs"
"""The folder in the run directory that holds each process's log: ``NAME.log``."""
LOST = 1
"""Exit status of a launch that was ended because a process was lost."""


@frozen(kw_only=True)
class Process:
    """One or several identical processes, which a launcher places."""

    name: str
    """One word, unique in the launch."""
    role: Role
    command: Sequence[str]
    environ: Mapping[str, str] = field(factory=dict)
    """Variables that the process gets in addition to those of the launching process."""
    count: int = 1
    cpus: int = 0
    """CPU cores of each process; 0: any, and none is reserved."""
    gpus: int = 0
    """GPUs of each process."""
    ranks: int = 1
    """Number of trainer processes; `cpus` and `gpus` are those of each. Above 1 only in role
    ``run``, whose command itself starts them on its machine."""
    rank_command: Sequence[str] | None = None
    """The program that torchrun starts in each rank instead of `command`; None if it can't."""

    @property
    def names(self) -> Sequence[str]:
        """The name of each process, used for its log and as its variable ``ALE_PROCESS``."""
        if self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}-{index}" for index in range(self.count))


@frozen(kw_only=True)
class Launch:
    """A run and the processes beside it."""

    name: str
    """The run's id."""
    directory: Path
    """The run directory, absolute; it may not exist yet."""
    run: Process
    others: Sequence[Process] = ()
    """Processes that are started before the run."""
    nodes: int = 1
    """Number of machines over which the ranks are spread evenly."""
    restarts: int = 0
    """How often a lost process is started again; the next loss ends the run."""

    def log(self, name: str) -> Path:
        """The file in which a process's output is collected, given one of `Process.names`."""
        return self.directory / LOGS / f"{name}.log"


class Launched(Protocol):
    """A launch that was started."""

    async def wait(self) -> int:
        """Wait until the run has ended; returns its exit status, or `LOST`. May be called once."""
        ...

    async def send_signal(self, number: signal.Signals) -> None:
        """Pass a signal to the run; nothing happens if it has ended."""
        ...

    async def end(self) -> None:
        """End every process that is left, within seconds even if it ignores SIGTERM.

        May be called at any time, even while `wait` is awaited, and more than once.
        """
        ...


@runtime_checkable
class Launcher(Protocol):
    """Starts the processes of a run where its system places them.

    Every process gets its log in the run directory, and the variables ``ALE_RUN_DIRECTORY`` and
    ``ALE_PROCESS``. A process of role ``server`` or ``worker`` is lost if it ends before the run
    with a status other than 0; the run is lost if it is killed by a signal that the launcher has
    not sent, or ends with the status of `LostProcessError`. A lost process is started again (the
    run by the same command, which resumes it), or else its loss ends the run by SIGTERM. When the
    run has ended, the other processes are ended.
    """

    def plan(self, launch: Launch) -> str:
        """The processes or jobs that `start` would start or submit, as text; starts nothing.

        Raises:
            InputError: this launcher can't start it, at all or with these resources.
        """
        ...

    async def start(self, launch: Launch, say: Callable[[str], None]) -> Launched:
        """Start everything.

        Args:
            launch: one that `plan` accepts.
            say: shows the user what happens, as a line of text.

        Raises:
            InputError: as for `plan`.
            LaunchError: the system refused it; nothing is left behind.
        """
        ...
