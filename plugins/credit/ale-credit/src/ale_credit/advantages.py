"""Advantages of whole episodes, relative to the group of rollouts of the same task.

Sums are correctly rounded (`math.fsum`), so the order of the rollouts changes nothing, not even the
last bit. Each function takes n rewards and returns n advantages, in the same order.
"""

import math
from collections.abc import Sequence
from typing import Literal


def mean_centred(rewards: Sequence[float]) -> tuple[float, ...]:
    """A_i = R_i - mean(R).

    Args:
        rewards: R_1 ... R_n, unitless, n at least 1.

    Returns:
        n values that sum to 0, up to rounding. With n = 1: 0.

    Source: Dr. GRPO, arXiv:2503.20783, section 3.2. The baseline includes R_i itself, so this is
    (n - 1) / n times `leave_one_out`.
    """
    mean = math.fsum(rewards) / len(rewards)
    return tuple(reward - mean for reward in rewards)


def group_normalised(
    rewards: Sequence[float], std: Literal["sample", "population"], eps: float
) -> tuple[float, ...]:
    """A_i = (R_i - mean(R)) / (std(R) + eps).

    Args:
        rewards: R_1 ... R_n, unitless; n at least 2 for the sample's std, else at least 1.
        std: ``sample`` divides the sum of squares by n - 1, ``population`` by n.
        eps: added to the standard deviation, above 0.

    Returns:
        n values in standard deviations of the group.

    Raises:
        ValueError: one reward and ``sample``, which is undefined.

    Source: GRPO, arXiv:2402.03300, section 4.1.2, which does not say which standard deviation it
    means and has no eps. ``sample`` and 1e-6 are what verl computes (`torch.std`, epsilon in
    `compute_grpo_outcome_advantage`); TRL's is ``sample`` too, with 1e-4.
    """
    n = len(rewards)
    divisor = n - 1 if std == "sample" else n
    if divisor < 1:
        raise ValueError("the sample standard deviation needs at least two rewards")
    centred = mean_centred(rewards)
    deviation = math.sqrt(math.fsum(value * value for value in centred) / divisor)
    return tuple(value / (deviation + eps) for value in centred)


def leave_one_out(rewards: Sequence[float]) -> tuple[float, ...]:
    """A_i = R_i - mean of the other n - 1 rewards.

    Args:
        rewards: R_1 ... R_n, unitless, n at least 2.

    Returns:
        n values. The baseline does not contain R_i, so it adds no bias.

    Raises:
        ValueError: fewer than two rewards.

    Source: RLOO, arXiv:2402.14740 (after Kool et al., 2019).
    """
    n = len(rewards)
    if n < 2:
        raise ValueError("leave-one-out needs at least two rewards")
    total = math.fsum(rewards)
    return tuple(reward - (total - reward) / (n - 1) for reward in rewards)
