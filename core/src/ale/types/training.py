"""Inputs and outputs of a trainer."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import field

from ale.errors import AleError
from ale.types._record import record
from ale.types.credit import Credit, Group, Rollout


@record
class CreditedGroup:
    """A group and the credit of each of its rollouts, in the same order."""

    group: Group
    credits: tuple[Credit, ...]

    def pairs(self) -> Iterator[tuple[Rollout, Credit]]:
        """Each rollout with its credit.

        Raises:
            AleError: credits, chunks and episodes do not match, or a number is not finite.
        """
        rollouts = self.group.rollouts
        if len(self.credits) != len(rollouts):
            raise AleError(
                f"{len(self.credits)} credits for {len(rollouts)} rollouts "
                f"of task {self.group.task_id}"
            )
        for rollout, credit in zip(rollouts, self.credits, strict=True):
            _check(rollout, credit)
            yield rollout, credit


def _check(rollout: Rollout, credit: Credit) -> None:
    episode = rollout.episode
    if credit.episode_id != episode.id:
        raise AleError(f"credit of episode {credit.episode_id} given for episode {episode.id}")
    if episode.reward is None:
        raise AleError(f"episode {episode.id} broke; it must not be credited")
    columns = (credit.rewards, credit.returns, credit.weights)
    if any(len(column) != len(rollout.chunks) for column in columns):
        raise AleError(
            f"episode {episode.id} has {len(rollout.chunks)} chunks, and its credit by "
            f"{credit.scheme} has {len(credit.rewards)} rewards, {len(credit.returns)} returns and "
            f"{len(credit.weights)} weights"
        )
    if not all(math.isfinite(value) for column in columns for value in column):
        raise AleError(f"credit of episode {episode.id} by {credit.scheme} is not finite")


@record
class Batch:
    """The episodes of one training step."""

    step: int
    groups: tuple[CreditedGroup, ...]


@record
class StepReport:
    """The result of one training step. `metrics` go to the observers under these names."""

    step: int
    policy_version: int
    """The policy's version after the step."""
    metrics: Mapping[str, float] = field(factory=dict)


@record
class PolicySnapshot:
    """An immutable version of the policy. A new version is a new name; none is ever reused."""

    version: int
    path: str | None = None
    """Folder with its weights; None if they are only in this process, or nowhere (an export)."""
    weights: Any = field(default=None, repr=False, eq=False)
    """The weights in memory, in a form that trainer and model agree on. Never stored."""
