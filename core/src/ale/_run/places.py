"""Choose where a criterion is graded: code of the model must not have prepared the place."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from attrs import define

from ale._run.damage import check_works
from ale.protocols import Criterion, RunsPrograms, Sandbox
from ale.types import Capabilities, Task

REMARK = "the agent's commands could replace the programs with which this was graded"
"""Added to the detail of a score where that is so."""
_ROOT = ("root", "0")


@define
class Places:
    """The sandboxes in which one task, or one of its steps, is graded."""

    own: Sandbox
    """The agent's."""
    used: bool
    """Code of the model may have run in it."""
    fresh: Callable[[], AbstractAsyncContextManager[Sandbox]]
    """Opens another one, set up for the task."""

    @asynccontextmanager
    async def of(self, criterion: Criterion) -> AsyncIterator[Sandbox]:
        """The sandbox for a criterion.

        Raises:
            AleError: it could not be opened or set up.
        """
        if isinstance(criterion, RunsPrograms) and not criterion.needs_workspace and self.used:
            async with self.fresh() as sandbox:
                yield sandbox
            return
        self.used = True
        yield self.own

    async def check(self, damage: str) -> None:
        """Check that a fresh sandbox works, so that it was the answer that did the damage.

        Raises:
            AleError: it does not, or could not be opened or set up.
        """
        async with self.fresh() as sandbox:
            await check_works(sandbox, damage)

    def remark(self, criterion: Criterion, task: Task) -> str:
        """The remark on the agent's sandbox for the detail of a score; empty if there is none."""
        said = self.used and can_mislead(criterion, task, self.own.capabilities)
        return REMARK if said else ""


def can_mislead(criterion: Criterion, task: Task, sandbox: Capabilities) -> bool:
    """Can commands of the agent replace programs that a criterion runs beside them?"""
    if not (isinstance(criterion, RunsPrograms) and criterion.needs_workspace):
        return False
    user = task.environment.agent_user or task.environment.user
    is_root = user is None or user.partition(":")[0] in _ROOT
    return sandbox.system_writable and is_root
