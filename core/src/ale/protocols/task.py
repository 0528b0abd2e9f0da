"""Where tasks come from, and how what became of them is judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ale.protocols.sandbox import Sandbox
    from ale.types import Score, Task, Trajectory


@runtime_checkable
class TaskSource(Protocol):
    """Where tasks come from."""

    def load(self) -> Iterable[Task]:
        """The tasks, in a fixed order.

        Raises:
            InputError: with every problem of every task that can't be read.
        """
        ...


@runtime_checkable
class Criterion(Protocol):
    """Judges what an agent left behind."""

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """Look and judge; the sandbox is still open, the agent has ended.

        Whatever the agent left (files, processes, a changed PATH) is hostile until proven
        otherwise. `Score.weight` is set by the run.

        Raises:
            GradingError: it could not be judged. The episode is then broken, never 0.
            SandboxError: likewise.
        """
        ...
