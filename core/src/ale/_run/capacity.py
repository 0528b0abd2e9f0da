"""How many groups a stream may start: staleness as arithmetic, in groups.

AReaL (arXiv:2505.24298, 5.1) counts samples; with whole groups the formula is the same.
"""

from attrs import field, frozen, validators


@frozen(kw_only=True)
class Capacity:
    """The limit of one run.

    With `batch` groups learned in each step, the group that is started as number n (from 0) can be
    learned first in step n // batch, so it is at most `staleness` steps too early if
    n < (staleness + version + 1) * batch. What takes longer than other groups may be older.
    """

    batch: int = field(validator=validators.ge(1))
    """Groups that a step learns from: B."""
    staleness: int = field(validator=validators.ge(0))
    """``run.staleness``: eta."""
    steps: int = field(validator=validators.ge(1))
    """Steps of the run: groups that none of them will need are not started."""
    max_running: int = field(validator=validators.ge(1))
    """Most groups that run at once."""

    def free(self, *, version: int, accepted: int, running: int) -> int:
        """Number of groups that may be started now, at least 0.

        Args:
            version: steps that the policy has learned from.
            accepted: groups that were complete and are not dropped: learned from, or waiting.
            running: groups that are started and not complete.
        """
        ahead = min(self.staleness + version + 1, self.steps) * self.batch
        return max(0, min(self.max_running - running, ahead - accepted - running))
