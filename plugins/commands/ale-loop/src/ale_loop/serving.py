"""Hands the deployed version to the servers, and again to those that come later."""

from collections.abc import Callable

from attrs import define, field

from ale.errors import AleError, InputError, Problem
from ale.protocols import Checkable, Policy
from ale.types import PolicySnapshot, replace


@define(kw_only=True)
class Serving:
    """The component whose servers have the deployed version.

    Args:
        policy: it; None: nobody is given anything.
        report: gets a message where servers can't be reached, once for each reason.
    """

    policy: Policy | None
    report: Callable[[str], None]
    given: int | None = None
    """The version that was handed over."""
    _said: str = field(default="", init=False)

    def check(self, snapshot: PolicySnapshot) -> None:
        """Raises `InputError` where the trainer's snapshots have no weights to hand over."""
        if self.policy is not None and snapshot.weights is None and snapshot.path is None:
            message = "the trainer gives no weights that servers could be given"
            hint = "trainer: {type: policy, sync: copy}"
            raise InputError([Problem(message=message, path="trainer", hint=hint)])

    async def give(self, version: int, snapshot: PolicySnapshot) -> bool:
        """Hand over a version unless that was done, and look at the servers; False on failure."""
        if self.policy is None:
            return True
        try:
            if self.given != version:
                await self.policy.load_policy(replace(snapshot, version=version))
                self.given = version
            if isinstance(self.policy, Checkable):
                await self.policy.check()
        except AleError as error:
            if str(error) != self._said:
                self._said = str(error)
                self.report(f"the servers do not have version {version} yet: {error}")
            return False
        self._said = ""
        return True
