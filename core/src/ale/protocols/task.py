"""Task sources, and the criteria that grade tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ale.protocols.sandbox import Sandbox
    from ale.types import Score, Task, Trajectory


@runtime_checkable
class TaskSource(Protocol):
    """Provides tasks."""

    def load(self) -> Iterable[Task]:
        """The tasks, in a fixed order.

        Raises:
            InputError: with every problem of every task that can't be read.
        """
        ...


@runtime_checkable
class Criterion(Protocol):
    """Grades the state in which an agent left the sandbox."""

    async def grade(self, task: Task, trajectory: Trajectory, sandbox: Sandbox) -> Score:
        """Grade after the agent has ended; the sandbox is still open.

        Treat whatever the agent left (files, processes, a changed PATH) as hostile.
        `Score.weight` is set by the run.

        Raises:
            GradingError: grading was not possible. The episode is then broken, never 0.
            SandboxError: the same.
        """
        ...


@runtime_checkable
class RunsPrograms(Protocol):
    """A criterion that runs programs in the sandbox, which code that ran there before can change.

    Where it is graded follows from the property. A score of programs that the agent could replace
    says so.
    """

    @property
    def needs_workspace(self) -> bool:
        """Whether it grades what the agent left in the sandbox.

        If not, it is given a sandbox, set up for the task, in which nothing has run yet.
        """
        ...
