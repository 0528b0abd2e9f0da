"""Which tokens of a batch teach what: by reinforcement with the fallback of Eq. 10, or imitation.

A lesson turns a batch into samples whose weights are final: divided by the normaliser of the
update that they belong to, so that the loss of any part of them is a plain sum.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from attrs import evolve, frozen

from ale.runs import SUCCESS
from ale.types import Batch, CreditedGroup, Rollout
from ale_trainer_policy.normalise import NORMALISERS, Counted
from ale_trainer_policy.options import ImitationOptions, ObjectiveParts, SftOptions
from ale_trainer_policy.samples import Floats, Read, Sample, read_group, with_expert_next

EXPERT_TURNS = "expert_turns"
"""Key of `Episode.metadata`: K*, the number of turns of the whole expert's episode, where only
its beginning was replayed. Without it the episode itself is the expert's."""


@frozen(kw_only=True)
class Pace:
    """How a batch is gone through; None where it is like any other."""

    epochs: int | None = None
    lr: float | None = None


class Lesson(Protocol):
    """What a trainer learns from a batch."""

    @property
    def reinforces(self) -> bool:
        """Is the probability of what was sampled weighed against the sampler's?"""
        ...

    def read(self, batch: Batch) -> Read:
        """The samples of a batch, those that teach nothing included; weights as credited."""
        ...

    def normalised(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """The samples of one update, with the divisor in their weights. Counts all of them."""
        ...

    def pace(self, samples: Sequence[Sample]) -> Pace:
        """How this batch is gone through."""
        ...


@frozen(kw_only=True)
class Reinforcement:
    """Credit's weights for what was sampled, imitation for what was forced."""

    parts: ObjectiveParts
    imitation: ImitationOptions

    @property
    def reinforces(self) -> bool:
        """It is."""
        return True

    def read(self, batch: Batch) -> Read:
        """The samples of a batch. Raises as `read_group`."""
        counts: Counter[str] = Counter()
        samples: list[Sample] = []
        for group in batch.groups:
            imitates = self._imitates(group)
            for rollout, sample in read_group(group, counts):
                if imitates:
                    sample = self._with_imitation(rollout, sample, counts)
                samples.append(sample)
        return Read(samples=tuple(samples), counts=counts)

    def _imitates(self, group: CreditedGroup) -> bool:
        if self.imitation.when == "fallback":
            return not any(_sampled_success(rollout) for rollout in group.group.rollouts)
        return self.imitation.when == "always"

    def _with_imitation(self, rollout: Rollout, sample: Sample, counts: "Counter[str]") -> Sample:
        """Eq. 10's sum over k <= f: the forced turns, and the expert's turn at the fork itself."""
        episode = rollout.episode
        sample = with_expert_next(episode, sample, counts)
        # By turn, as K* is: a chunker may cut a turn apart, and then knows no k of the expert's.
        n_turns = int(episode.metadata.get(EXPERT_TURNS, len(episode.trajectory.turns)))
        discount = self.imitation.gamma ** np.maximum(0, n_turns - 1 - sample.turn)
        wanted = np.where(sample.sampled, 0.0, self.imitation.weight * discount)
        return evolve(sample, imitation=wanted)

    def pace(self, samples: Sequence[Sample]) -> Pace:
        """What is imitated may be gone through more often and faster: it is never off-policy."""
        if not any(sample.imitation.any() for sample in samples):
            return Pace()
        return Pace(epochs=self.imitation.epochs, lr=self.imitation.lr)

    def normalised(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Divide by the objective's Z; imitation by the number of episodes that are imitated.

        Episodes of which every token was forced are no trajectories of the policy's, and are not
        counted in Z; those whose credit is 0 are.
        """
        own = [sample for sample in samples if not sample.all_forced]
        counted = [Counted(tokens=int(s.sampled.sum()), skipped=s.skipped) for s in own]
        divisors = NORMALISERS[self.parts.normaliser](counted, self.parts.normaliser_constant)
        by_episode = dict(zip((id(s) for s in own), divisors, strict=True))
        n_imitated = max(1, sum(bool(sample.imitation.any()) for sample in samples))
        return [
            evolve(
                sample,
                weight=sample.weight / by_episode.get(id(sample), 1.0),
                imitation=sample.imitation / n_imitated,
            )
            for sample in samples
        ]


def _sampled_success(rollout: Rollout) -> bool:
    """A success that the policy had a part in: a replayed expert alone is none."""
    episode = rollout.episode
    sampled = any(not turn.completion.forced for turn in episode.trajectory.turns)
    return sampled and episode.reward == SUCCESS


@frozen(kw_only=True)
class Imitation:
    """Maximum likelihood: -1/Z sum log pi over the tokens of the chosen episodes."""

    options: SftOptions

    @property
    def reinforces(self) -> bool:
        """It is not."""
        return False

    def read(self, batch: Batch) -> Read:
        """The samples of a batch. Raises as `read_group`."""
        counts: Counter[str] = Counter()
        samples = [
            evolve(sample, weight=np.zeros_like(sample.weight), imitation=self._of(rollout, sample))
            for group in batch.groups
            for rollout, sample in read_group(group, counts)
        ]
        counts["episodes_imitated"] = sum(bool(sample.imitation.any()) for sample in samples)
        return Read(samples=tuple(samples), counts=counts)

    def _of(self, rollout: Rollout, sample: Sample) -> Floats:
        forced = (~sample.sampled).astype(np.float64)
        if self.options.learn_from == "forced":
            return forced
        reward = rollout.episode.reward
        if reward is not None and reward >= self.options.min_reward:
            return np.ones_like(forced)
        return forced if self.options.learn_from == "both" else np.zeros_like(forced)

    def pace(self, samples: Sequence[Sample]) -> Pace:
        """Every batch is like any other."""
        return Pace()

    def normalised(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Divide by Z, counted over the tokens and episodes that are imitated."""
        chosen = [sample for sample in samples if sample.imitation.any()]
        counted = [Counted(tokens=int(s.imitation.sum()), skipped=False) for s in chosen]
        divisors = NORMALISERS[self.options.normaliser](counted, 1.0)
        return [
            evolve(sample, imitation=sample.imitation / divisor)
            for sample, divisor in zip(chosen, divisors, strict=True)
        ]
