"""How many groups a stream may start: staleness as arithmetic, in groups.

AReaL (arXiv:2505.24298, 5.1) counts samples: min(max_running - running, (eta + version + 1) * B -
accepted - running). With whole groups the formula is the same; here it is written by what is still
lacking, since the steps of a start scheme have batches of different sizes.
"""

from attrs import field, frozen, validators


@frozen(kw_only=True)
class Capacity:
    """The limit of one run.

    Groups are started for the first `ahead` steps, as many as these lack. So the group that is
    started as number n (from 0), with B groups in each step, is at most `staleness` steps too
    early: n < (staleness + version + 1) * B. What takes longer than other groups may be older.
    """

    staleness: int = field(validator=validators.ge(0))
    """``run.staleness``: eta."""
    steps: int = field(validator=validators.ge(1))
    """Steps of the run: groups that none of them will need are not started."""
    max_running: int = field(validator=validators.ge(1))
    """Most groups that run at once."""
    refills: int = field(default=0, validator=validators.ge(0))
    """``run.refills``: a step has at most so many times its groups in further ones."""

    def ahead(self, version: int) -> int:
        """The number of first steps for which groups may be started.

        Args:
            version: steps that the policy has learned from.
        """
        return min(self.staleness + version + 1, self.steps)

    def free(self, *, wanted: int, waiting: int, running: int, useless: int = 0) -> int:
        """Number of groups that may be started now, at least 0.

        Args:
            wanted: groups of the steps before `ahead` whose groups are not chosen.
            waiting: complete groups for these steps.
            running: groups that are started and not complete.
            useless: complete groups that count as refills only.
        """
        lacking = wanted - waiting - running
        most = wanted * (self.refills + 1) - waiting - useless - running
        return max(0, min(self.max_running - running, lacking, most))
