"""The control of ``code_rewards.yaml``: every attempt has the weight 1, whatever it earned."""

from collections.abc import Sequence

from ale.plugin import BuildContext, Component, hookimpl
from ale.protocols import CreditScheme
from ale.types import Credit, Group


class WeightOne:
    """Imitates what was sampled: it can sharpen the policy, and knows no reward."""

    def assign(self, group: Group) -> Sequence[Credit]:
        """Ones."""
        return [
            Credit(
                episode_id=rollout.episode.id,
                scheme="weight-one",
                rewards=ones,
                returns=ones,
                weights=ones,
            )
            for rollout in group.rollouts
            for ones in [(1.0,) * len(rollout.chunks)]
        ]


def _build(options: None, context: BuildContext) -> CreditScheme:
    return WeightOne()


@hookimpl
def ale_credit_schemes() -> Sequence[Component[None, CreditScheme]]:
    """Register ``weight-one``."""
    return [Component("weight-one", None, _build, summary="The weight 1 for every chunk.")]
