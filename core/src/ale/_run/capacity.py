"""How many groups a stream may start: staleness as arithmetic, in groups.

AReaL (arXiv:2505.24298, 5.1) counts samples: min(max_running - running, (eta + version + 1) * B -
accepted - running). With whole groups the formula is the same; here it is written in terms of what
is still lacking, since the steps of a start scheme have batches of different sizes.
"""

from attrs import field, frozen, validators


@frozen(kw_only=True)
class Capacity:
    """The limit of one run.

    Groups are started for the first `ahead` steps, as many as these lack. So the n-th group to be
    started (from 0), with B groups in each step, is at most `staleness` steps too early:
    n < (staleness + version + 1) * B. A group that takes longer than others may be older.
    """

    staleness: int = field(validator=validators.ge(0))
    """``run.staleness``: eta."""
    steps: int = field(validator=validators.ge(1))
    """Steps of the run: groups that no step will need are not started."""
    max_running: int = field(validator=validators.ge(1))
    """Most groups to run at once."""
    refills: int = field(default=0, validator=validators.ge(0))
    """``run.refills``: a step has at most this many times its groups as further groups."""

    def ahead(self, version: int) -> int:
        """The number of first steps for which groups may be started.

        Args:
            version: steps that the policy has learned from.
        """
        return min(self.staleness + version + 1, self.steps)

    def free(self, *, wanted: int, waiting: int, running: int, useless: int = 0) -> int:
        """Number of groups that may be started now, at least 0.

        Args:
            wanted: groups of those steps before `ahead` for which no groups have been chosen.
            waiting: complete groups for these steps.
            running: groups that are started but not complete.
            useless: complete groups that count as refills only.
        """
        lacking = wanted - waiting - running
        most = wanted * (self.refills + 1) - waiting - useless - running
        return max(0, min(self.max_running - running, lacking, most))
