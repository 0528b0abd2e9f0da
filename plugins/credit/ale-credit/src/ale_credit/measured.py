"""Credit from measured values of states."""

from collections.abc import Sequence

from ale.types import Credit, Group, Rollout
from ale.values import Values, rates, read_values, worths
from ale_credit.options import OracleOptions
from ale_credit.returns import NO_CHUNKS, reward_of, terminal_rewards

NOT_MEASURED = "the values of this episode were not measured"


class Oracle:
    """The weight of chunk k is V(s_(k+1)) - V(s_k), with V measured by rollouts.

    An upper bound for what a critic can give to stored episodes: VinePPO's advantage
    (arXiv:2410.01679) without discount, from values that were measured beforehand. Episodes without
    values are skipped, so it can't train on new ones.
    """

    def __init__(self, options: OracleOptions) -> None:
        self._values: Values = read_values(options.values)
        self._rates = rates(self._values)

    def assign(self, group: Group) -> Sequence[Credit]:
        """One credit per rollout, each from its own values alone.

        Raises:
            InputError: a chunk begins within a turn.
        """
        return [self._credit(rollout) for rollout in group.rollouts]

    def _credit(self, rollout: Rollout) -> Credit:
        n, reward = len(rollout.chunks), reward_of(rollout.episode)
        values = self._values.episodes.get(rollout.episode.id)
        known = values is not None and n > 0
        weights = worths(values, rollout.chunks, self._rates) if values and n else (0.0,) * n
        return Credit(
            episode_id=rollout.episode.id,
            scheme="oracle",
            rewards=terminal_rewards(reward, n),
            returns=(reward,) * n,
            weights=weights,
            skipped=None if known else NO_CHUNKS if not n else NOT_MEASURED,
        )
