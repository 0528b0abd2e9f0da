"""Damage that the agent did to its sandbox: its failure, not one of the infrastructure."""

from collections.abc import Iterator
from typing import Literal

from attrs import define

from ale.errors import GradingError, SandboxDamagedError, SandboxError, SandboxLostError
from ale.protocols import Sandbox
from ale.types import CriterionSpec, Score, Stop


@define
class Damage:
    """Damage to the sandbox of one attempt at an episode.

    Args:
        lost: what a sandbox that ended for an unknown reason counts as, ``run.lost_sandbox``.
    """

    lost: Literal["broken", "failed"] = "broken"
    began: bool = False
    """The agent has begun. What was damaged before was not damaged by it."""
    message: str | None = None
    """How the sandbox was damaged; None: no damage is known."""

    def caused(self, error: Exception) -> bool:
        """Does this error follow from what the agent did to the sandbox? Notes the damage.

        With known damage, a sandbox that fails, and a criterion that can't be evaluated in it, are
        consequences.
        """
        if not self.began:
            return False
        chain = list(_chain(error))
        kinds = _ENDED if self.lost == "failed" else SandboxDamagedError
        if found := next((each for each in chain if isinstance(each, kinds)), None):
            self.note(str(found))
        later = any(isinstance(each, _UNABLE) for each in chain)
        return self.message is not None and later

    async def found(self, error: Exception, sandbox: Sandbox) -> bool:
        """Could a criterion not be evaluated because the agent's sandbox runs no command any more?

        Looks, as a criterion can't tell what is missing from what the agent took away.
        """
        if not self.began or not any(isinstance(each, _UNABLE) for each in _chain(error)):
            return False
        try:
            result = await sandbox.exec("exit 0", timeout_s=_LOOK_S)
        except SandboxError as failed:
            return self.caused(failed)
        if result.exit_code == 0 or result.timed_out:
            return False
        said = result.stderr.decode(errors="replace").strip()
        self.message = f"no command can be run in {sandbox.workdir}: {said}"
        return True

    def note(self, message: str) -> None:
        """Note damage; of several, the first is kept."""
        self.message = self.message or message

    def stop(self) -> Stop:
        """Why the agent stopped, if damage ended it."""
        return Stop(reason="agent_error", detail=f"the sandbox was damaged: {self.message}")

    def score(self, spec: CriterionSpec) -> Score:
        """The score of a criterion that can't be evaluated any more."""
        detail = f"the agent damaged the sandbox: {self.message}"
        return Score(
            criterion=spec.type, passed=False, value=0.0, weight=spec.weight, detail=detail
        )


_ENDED = (SandboxDamagedError, SandboxLostError)
_UNABLE = (SandboxError, GradingError)
_LOOK_S = 30.0


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it came from."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        following = following.__cause__ or following.__context__
    yield from seen


async def check_works(fresh: Sandbox, damage: str) -> None:
    """Check that a fresh sandbox of the same task runs commands: else it was not the agent.

    Raises:
        SandboxError: it does not.
    """
    session = await fresh.session()
    results = await fresh.exec("exit 0"), await session.run("(exit 0)")
    if codes := [result.exit_code for result in results if result.exit_code != 0]:
        raise SandboxError(f"{damage}; a fresh sandbox of the task fails too, with {codes[0]}")
