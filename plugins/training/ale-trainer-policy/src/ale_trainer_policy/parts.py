"""The parts of an objective: small pure functions over one value per trained token.

Every tensor has shape (T,), one entry per trained token of a micro-batch, in float32 or wider;
`group` holds for each token the number of the chunk or trajectory that it is in. Nothing here
carries a gradient but the KL estimators: an objective is a coefficient per token in front of its
log-probability.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def group_sum(value: Tensor, group: Tensor) -> Tensor:
    """For each token, the sum over all tokens of its group: (T,)."""
    n = int(group.max()) + 1 if group.numel() else 0
    total = torch.zeros(n, dtype=value.dtype, device=value.device).index_add_(0, group, value)
    return total[group]


def geometric_mean_ratio(log_ratio: Tensor, group: Tensor) -> Tensor:
    """rho_g = exp(mean over the tokens t of g of log_ratio_t).

    Args:
        log_ratio: log p_t - log q_t, nats.
        group: numbers of chunks (IPA) or trajectories (Eq. 4, GSPO); all distinct at token level.

    Source: arXiv:2512.24873, Eq. 4 and 8; for whole sequences it is GSPO's s, arXiv:2507.18071.
    """
    return torch.exp(group_sum(log_ratio, group) / group_sum(torch.ones_like(log_ratio), group))


def product_ratio(log_ratio: Tensor, group: Tensor) -> Tensor:
    """rho_g = exp(sum over the tokens t of g of log_ratio_t): the ratio of the probabilities.

    Source: importance sampling as TOPR writes it for whole sequences, arXiv:2503.14286.
    """
    return torch.exp(group_sum(log_ratio, group))


def within(mismatch: Tensor, floor: float | None, threshold: float | None) -> Tensor:
    """m = 1 where floor <= mismatch <= threshold, else 0; None means no bound on that side.

    Args:
        mismatch: exp(mean(log pi_old - log mu_old)) over the token, chunk or trajectory.

    Returns:
        Booleans; False where mismatch is NaN.

    Source: arXiv:2512.24873, Eq. 8, with H as the threshold and no floor.
    """
    keep = ~torch.isnan(mismatch)
    if threshold is not None:
        keep = keep & (mismatch <= threshold)
    if floor is not None:
        keep = keep & (mismatch >= floor)
    return keep


Update = Callable[[Tensor, bool, float, float], Tensor]
"""(ratio, positive, clip_low, clip_high) -> coefficient in front of weight * grad log pi."""


def without_ratio(ratio: Tensor, positive: bool, low: float, high: float) -> Tensor:
    """1: the likelihood's own gradient. Positive side of IPA and TOPR; both of REINFORCE."""
    return torch.ones_like(ratio)


def full_ratio(ratio: Tensor, positive: bool, low: float, high: float) -> Tensor:
    """r, which gives the gradient of r * A."""
    return ratio


def truncated(ratio: Tensor, positive: bool, low: float, high: float) -> Tensor:
    """clamp(r, 0, 1). Negative side of IPA and TOPR: arXiv:2512.24873 Eq. 9, 2503.14286."""
    return ratio.clamp(0.0, 1.0)


def clipped(ratio: Tensor, positive: bool, low: float, high: float) -> Tensor:
    """r where min(r A, clip(r, 1 - low, 1 + high) A) has a gradient, else 0.

    For A > 0 that is r <= 1 + high; for A < 0, r >= 1 - low. The gradient of r A is r A times
    grad log pi.

    Source: PPO's surrogate as in GRPO (arXiv:2402.03300), DAPO (2503.14476: low and high apart)
    and, with the sequence's ratio, GSPO (2507.18071).
    """
    inside = ratio <= 1.0 + high if positive else ratio >= 1.0 - low
    return torch.where(inside, ratio, torch.zeros_like(ratio))


def bounded(ratio: Tensor, positive: bool, low: float, high: float) -> Tensor:
    """clip(r, 1 - low, 1 + high), the weight of every token. Source: CISPO, arXiv:2506.13585."""
    return ratio.clamp(1.0 - low, 1.0 + high)


Correction = Callable[[Tensor, Tensor, Tensor, float, float], Tensor]
"""(pi_old / mu_old, trajectory, sampled, floor, cap) -> factor on the weight of each token."""


def truncated_ratio(
    ratio: Tensor, trajectory: Tensor, sampled: Tensor, floor: float, cap: float
) -> Tensor:
    """min(kappa, cap).

    With a clipped update this is AReaL's decoupled objective (arXiv:2505.24298, Eq. 5): the ratio
    pi_theta / pi_old is clipped, and pi_old / mu_old multiplies it.
    """
    return ratio.clamp(max=cap)


def masked_ratio(
    ratio: Tensor, trajectory: Tensor, sampled: Tensor, floor: float, cap: float
) -> Tensor:
    """kappa where floor <= kappa <= cap, else 0. Source: IcePop, arXiv:2510.18855."""
    return torch.where(within(ratio, floor, cap), ratio, torch.zeros_like(ratio))


def rejected_ratio(
    ratio: Tensor, trajectory: Tensor, sampled: Tensor, floor: float, cap: float
) -> Tensor:
    """kappa in trajectories all of whose sampled tokens have floor <= kappa <= cap, else 0."""
    outside = (~within(ratio, floor, cap) & sampled).to(ratio.dtype)
    return torch.where(group_sum(outside, trajectory) == 0, ratio, torch.zeros_like(ratio))


def k1(x: Tensor) -> Tensor:
    """-x: its mean under pi_theta is the KL, and its gradient's mean is 0."""
    return -x


def k2(x: Tensor) -> Tensor:
    """x^2 / 2: its gradient's mean under pi_theta is the KL's; its own mean is only close to it."""
    return x * x / 2


def k3(x: Tensor) -> Tensor:
    """exp(x) - 1 - x: its mean under pi_theta is the KL; its gradient's mean is the gradient of
    the other direction, KL(pi_ref || pi_theta). GRPO's, arXiv:2402.03300, Eq. 4.
    """
    return torch.expm1(x) - x


KL_ESTIMATORS: Mapping[str, Callable[[Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}
"""Estimate KL(pi_theta || pi_ref) at a token of pi_theta, from x = log pi_ref - log pi_theta.
Source: Schulman, Approximating KL Divergence, 2020."""
CORRECTIONS: Mapping[str, Correction] = {
    "truncate": truncated_ratio,
    "mask": masked_ratio,
    "reject": rejected_ratio,
}
RATIOS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "geometric-mean": geometric_mean_ratio,
    "product": product_ratio,
}
UPDATES: Mapping[str, Update] = {
    "none": without_ratio,
    "ratio": full_ratio,
    "clamp": truncated,
    "clip": clipped,
    "bound": bounded,
}
LIMITS = ("clamp", "clip", "bound")
"""The updates whose coefficient is the ratio kept within limits."""
