"""Inputs and outputs of a trainer."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

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


HandOver = Literal["in-place", "tensors", "folder"]
"""The ways in which a trainer hands weights to the model that samples; there are no others.

``in-place``: the model that the policy has (`ale.protocols.PolicyModel.model`) is the one that was
trained, so nothing is handed over. ``tensors``: by the names of this model's parameters, with
adapters merged; tied ones may be there under each of their names. ``folder``: these tensors in
files of safetensors.
"""

HAND_OVERS: frozenset[HandOver] = frozenset(get_args(HandOver))


@record
class PolicySnapshot:
    """An immutable version of the policy. A new version is a new name; none is ever reused."""

    version: int
    path: str | None = None
    """Folder with its weights, if they are handed over as files."""
    weights: Mapping[str, Any] | None = field(default=None, repr=False, eq=False)
    """Its weights by name, if they are handed over as tensors. Never stored."""

    def __attrs_post_init__(self) -> None:
        if self.path is not None and self.weights is not None:
            raise ValueError("a snapshot has a 'path' or 'weights', not both")

    @property
    def hand_over(self) -> HandOver:
        """How the weights are handed over."""
        if self.weights is not None:
            return "tensors"
        return "in-place" if self.path is None else "folder"
