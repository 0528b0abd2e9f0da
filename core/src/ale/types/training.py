"""Inputs and outputs of a trainer."""

from collections.abc import Mapping
from typing import Any

from attrs import field

from ale.types._record import record
from ale.types.credit import Credit, Group


@record
class CreditedGroup:
    """A group and the credit of each of its rollouts, in the same order."""

    group: Group
    credits: tuple[Credit, ...]


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
