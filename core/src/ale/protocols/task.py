"""Task sources, and the criteria that grade tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

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
class NeedsTools(Protocol):
    """A criterion that needs programs or modules which nobody asked the agent for.

    After a score that is no pass it is asked for what the agent's sandbox lacks, and then for what
    a sandbox lacks that was set up for the task and in which nothing has run. What is missing in
    both makes the score no verdict on the agent: the episode breaks. What the agent took away is
    missing in one alone, and the score stands.

    A criterion that may pass because something is missing (``! tool a``) has a true attribute
    ``passes_without_tools``: it is asked after a pass too, which is 0 where the agent took it away.
    """

    async def lacking(self, task: Task, sandbox: Sandbox, *, untouched: bool) -> Collection[str]:
        """The names of what this sandbox lacks.

        What the agent was told of is left out: it may be its work.

        Args:
            untouched: no agent has worked in the sandbox.

        Raises:
            SandboxError: the sandbox is gone.
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


@runtime_checkable
class JudgesItself(Protocol):
    """A criterion that opens judges by itself (`ale.protocols.OpensJudge`), with `ale.judging`.

    It is given the agent's sandbox, while the run opens a judge for every other criterion that
    needs the workspace.
    """

    @property
    def opens_judge(self) -> bool:
        """Whether it will open one."""
        ...


@runtime_checkable
class KnowsWeakness(Protocol):
    """A criterion that knows by its options how it could be passed without the work."""

    def weakness(self, task: Task) -> str:
        """How, for a note of ``ale check`` and at the start of a run; empty if it knows no way."""
        ...
