"""Training targets: what each token of a batch contributes to the loss.

`Reinforcement` weighs sampled tokens by credit and imitates forced ones (Eq. 10); `Imitation` is
maximum likelihood. A target turns a batch into samples with final weights, which include the
normaliser of their update: the loss of any subset is a plain sum.
"""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from attrs import evolve, frozen

from ale.protocols import Objective
from ale.runs import SUCCESS
from ale.types import Batch, CreditedGroup, Rollout
from ale_trainer_policy.imitation_options import ImitationOptions
from ale_trainer_policy.options import ObjectiveParts, SftOptions
from ale_trainer_policy.samples import (
    Floats,
    Sample,
    SampleBatch,
    read_group,
    with_expert_next,
)
from ale_training.normalise import NORMALISERS, Counted

EXPERT_TURNS = "expert_turns"
"""Key of `Episode.metadata`: K*, the number of turns of the expert's whole episode. If missing, the
episode itself is the expert's."""


@frozen(kw_only=True)
class Schedule:
    """How one batch is trained on; None keeps the trainer's."""

    epochs: int | None = None
    lr: float | None = None
    fresh_moments_next: bool = False
    """The next batch without this flag begins with fresh AdamW moments."""


@frozen(kw_only=True)
class Reinforcement:
    """Credit weights for sampled tokens, imitation of forced tokens."""

    objective: Objective
    imitation: ImitationOptions

    uses_ratio: ClassVar[bool] = True
    """Does the loss use importance ratios, so that trainer and sampler must agree?"""

    def read(self, batch: Batch) -> SampleBatch:
        """The samples of a batch, with weights as credited; includes samples without any weight.

        Raises as `read_group`.
        """
        counts: Counter[str] = Counter()
        samples: list[Sample] = []
        # Does the loss have terms for tokens without credit?
        regularised = float(self.objective.needs_reference or self.objective.needs_entropy)
        for group in batch.groups:
            imitates = self._imitates(group)
            for rollout, sample in read_group(group, counts):
                if imitates:
                    sample = self._with_imitation(rollout, sample, counts)
                samples.append(evolve(sample, regularised=regularised))
        return SampleBatch(samples=tuple(samples), counts=counts)

    def _imitates(self, group: CreditedGroup) -> bool:
        if self.imitation.when == "fallback":
            return not any(_sampled_success(rollout) for rollout in group.group.rollouts)
        return self.imitation.when == "always"

    def _with_imitation(self, rollout: Rollout, sample: Sample, counts: "Counter[str]") -> Sample:
        """Eq. 10's sum over k <= f: the forced turns, and the expert's next turn at the fork f."""
        episode = rollout.episode
        sample = with_expert_next(episode, sample, counts)
        # k counts turns, as K* does: chunks may be smaller or larger than the expert's turns.
        n_turns = int(episode.metadata.get(EXPERT_TURNS, len(episode.trajectory.turns)))
        discount = self.imitation.gamma ** np.maximum(0, n_turns - 1 - sample.turn)
        wanted = np.where(sample.sampled, 0.0, self.imitation.weight * discount)
        return evolve(sample, imitation=wanted)

    def schedule(self, samples: Sequence[Sample]) -> Schedule:
        """Imitation's own epochs and learning rate, as imitation is never off-policy."""
        if not any(sample.imitation.any() for sample in samples):
            return Schedule()
        return Schedule(
            epochs=self.imitation.epochs,
            lr=self.imitation.lr,
            fresh_moments_next=self.imitation.fresh_moments,
        )

    def normalised(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Divide weights by the objective's Z, imitation by the number of imitated episodes, and
        the critic's loss by the number of units.

        Episodes without sampled tokens do not count in Z; episodes with credit 0 do.
        """
        own = [sample for sample in samples if not sample.all_forced]
        counted = [Counted(tokens=int(s.sampled.sum()), skipped=s.skipped) for s in own]
        parts = self.objective
        constant = parts.normaliser_constant if isinstance(parts, ObjectiveParts) else 1.0
        divisors = NORMALISERS[parts.normaliser](counted, constant)
        by_episode = dict(zip((id(s) for s in own), divisors, strict=True))
        n_imitated = max(1, sum(bool(sample.imitation.any()) for sample in samples))
        n_units = sum(len(each.units.first) for each in own if each.units is not None)
        return [
            evolve(
                sample,
                weight=sample.weight / by_episode.get(id(sample), 1.0),
                imitation=sample.imitation / n_imitated,
                regularised=sample.regularised / by_episode.get(id(sample), 1.0),
                value=sample.value and evolve(sample.value, weight=sample.value.weight / n_units),
            )
            for sample in samples
        ]


def _sampled_success(rollout: Rollout) -> bool:
    """A success with at least one sampled turn; a replayed expert alone does not count."""
    episode = rollout.episode
    sampled = any(not turn.completion.forced for turn in episode.trajectory.turns)
    return sampled and episode.reward == SUCCESS


@frozen(kw_only=True)
class Imitation:
    """Maximum likelihood: -1/Z sum log pi over the tokens of selected episodes, except those of
    answers that did nothing (`Turn.credited`).
    """

    options: SftOptions

    uses_ratio: ClassVar[bool] = False

    def read(self, batch: Batch) -> SampleBatch:
        """The samples of a batch. Raises as `read_group`."""
        counts: Counter[str] = Counter()
        samples = [
            evolve(sample, weight=np.zeros_like(sample.weight), imitation=self._of(rollout, sample))
            for group in batch.groups
            for rollout, sample in read_group(group, counts)
        ]
        counts["episodes_imitated"] = sum(bool(sample.imitation.any()) for sample in samples)
        return SampleBatch(samples=tuple(samples), counts=counts)

    def _of(self, rollout: Rollout, sample: Sample) -> Floats:
        turns = rollout.episode.trajectory.turns
        credited = np.array([float(turn.credited) for turn in turns])[sample.turn]
        forced = np.where(sample.sampled, 0.0, credited)
        if self.options.learn_from == "forced":
            return forced
        reward = rollout.episode.reward
        if reward is not None and reward >= self.options.min_reward:
            return credited
        return forced if self.options.learn_from == "both" else np.zeros_like(forced)

    def schedule(self, samples: Sequence[Sample]) -> Schedule:
        """The trainer's own epochs and learning rate."""
        return Schedule()

    def normalised(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Divide by Z, computed over the imitated tokens and episodes."""
        chosen = [sample for sample in samples if sample.imitation.any()]
        counted = [Counted(tokens=int(s.imitation.sum()), skipped=False) for s in chosen]
        divisors = NORMALISERS[self.options.normaliser](counted, 1.0)
        return [
            evolve(sample, imitation=sample.imitation / divisor)
            for sample, divisor in zip(chosen, divisors, strict=True)
        ]


TrainingTarget = Reinforcement | Imitation
"""Turns batches into weighted samples."""
