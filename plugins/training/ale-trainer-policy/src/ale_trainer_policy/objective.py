"""The loss: a coefficient per token, and a plain sum.

L = - sum_t m_t f_t c(rho_t, sign_t) w_t log pi_theta(t)  -  sum_t b_t log pi_theta(t)
    + sum_t z_t (beta k(log pi_ref(t) - log pi_theta(t))  -  eta H(pi_theta(. | before t)))

w: credit weight over Z; b: imitation weight over its Z; rho, m, c and f: ratio, mask,
coefficient and correction as chosen in `ObjectiveParts`. Only log pi_theta carries a gradient
(arXiv:2512.24873, Eq. 9 and 10). A clipped surrogate such as GRPO's has the same gradient but a
different value. z: 1/Z for every sampled token; k: an estimator of KL(pi_theta || pi_ref); H:
entropy.
"""

from pathlib import Path

import torch
from attrs import evolve, frozen
from torch import Tensor

from ale.protocols import Objective, Terms, Tokens
from ale_trainer_policy.options import CorrectionOptions, KlOptions, Level, ObjectiveParts
from ale_trainer_policy.parts import (
    CORRECTIONS,
    KL_ESTIMATORS,
    LIMITS,
    RATIOS,
    UPDATES,
    geometric_mean_ratio,
    within,
)


def evaluate(
    parts: ObjectiveParts,
    logp: Tensor,
    old_logp: Tensor | None,
    tokens: Tokens,
    entropy: Tensor | None = None,
) -> Terms:
    """The loss of a micro-batch.

    Args:
        parts: the objective.
        logp: log pi_theta, (T,), with its gradient.
        old_logp: log pi_old, (T,); None where pi_old is pi_theta itself.
        tokens: the other inputs per token.
        entropy: of the distribution of each token, nats, (T,), with its gradient; needed only if
            the objective has an entropy term.
    """
    now = logp.detach()
    old = now if old_logp is None else old_logp
    aggregate = RATIOS[parts.aggregation]
    ratio = aggregate(now - old, _groups(parts.ratio, tokens))
    if parts.mask == "none":
        mismatch = torch.exp(old - tokens.behaviour_logp)
        unmasked = torch.ones_like(tokens.sampled)
    else:
        groups = _groups(parts.mask, tokens)
        mismatch = geometric_mean_ratio(old - tokens.behaviour_logp, groups)
        unmasked = within(mismatch, parts.mask_floor, parts.mask_threshold)
    positive = tokens.weight > 0 if parts.sign == "weight" else tokens.positive
    low, high = parts.clip_low, parts.clip_high
    coefficient = torch.where(
        positive,
        UPDATES[parts.positive](ratio, True, low, high),
        UPDATES[parts.negative](ratio, False, low, high),
    )
    limited = torch.where(
        positive,
        torch.full_like(positive, parts.positive in LIMITS),
        torch.full_like(positive, parts.negative in LIMITS),
    ) & (coefficient != ratio)
    # A masked or weightless token must not turn an infinite ratio into 0 * inf.
    used = unmasked & (tokens.weight != 0)
    factor, corrected = _corrected(parts.correction, old - tokens.behaviour_logp, tokens)
    front = torch.where(used, coefficient * factor * tokens.weight, torch.zeros_like(ratio))
    reinforcement = -(front * logp).sum()
    imitation = -(tokens.imitation * logp).sum()
    kl = _kl_loss(parts.kl, logp, tokens)
    bonus = _entropy_loss(parts.entropy, entropy, tokens)
    return Terms(
        loss=reinforcement + imitation + kl + bonus,
        reinforcement=reinforcement.detach(),
        imitation=imitation.detach(),
        kl=kl.detach(),
        entropy=bonus.detach(),
        ratio=ratio,
        mismatch=mismatch,
        unmasked=unmasked,
        coefficient=coefficient,
        limited=limited,
        correction=factor,
        corrected=corrected,
    )


@frozen(kw_only=True)
class Corrected(Objective):
    """An objective of another package, given weights that the trainer's correction has changed."""

    objective: Objective
    correction: CorrectionOptions

    @property
    def needs_reference(self) -> bool:  # type: ignore[override]
        """As the objective's own."""
        return self.objective.needs_reference

    @property
    def reference_model(self) -> Path | None:  # type: ignore[override]
        """As the objective's own."""
        return self.objective.reference_model

    @property
    def needs_entropy(self) -> bool:  # type: ignore[override]
        """As the objective's own."""
        return self.objective.needs_entropy

    @property
    def normaliser(self) -> str:  # type: ignore[override]
        """As the objective's own."""
        return self.objective.normaliser

    def evaluate(
        self, tokens: Tokens, logp: Tensor, old_logp: Tensor, entropy: Tensor | None
    ) -> Terms:
        """The objective's terms where pi_old / mu multiplies each weight, as far as it may."""
        factor, corrected = _corrected(self.correction, old_logp - tokens.behaviour_logp, tokens)
        nothing = torch.zeros_like(tokens.weight)
        weight = torch.where(tokens.weight != 0, factor * tokens.weight, nothing)
        terms = self.objective.evaluate(evolve(tokens, weight=weight), logp, old_logp, entropy)
        return evolve(terms, correction=factor, corrected=corrected)


def _kl_loss(options: KlOptions | None, logp: Tensor, tokens: Tokens) -> Tensor:
    if options is None or tokens.reference_logp is None or tokens.regularised is None:
        return torch.zeros_like(logp.detach()).sum()
    # A token that does not count must not turn an infinite difference into 0 * inf.
    counts = tokens.regularised != 0
    x = torch.where(counts, tokens.reference_logp - logp, torch.zeros_like(logp))
    return options.coefficient * (tokens.regularised * KL_ESTIMATORS[options.estimator](x)).sum()


def _entropy_loss(coefficient: float, entropy: Tensor | None, tokens: Tokens) -> Tensor:
    if coefficient == 0 or entropy is None or tokens.regularised is None:
        return torch.zeros_like(tokens.weight).sum()
    return -coefficient * (tokens.regularised * entropy).sum()


def _corrected(
    options: CorrectionOptions, log_mismatch: Tensor, tokens: Tokens
) -> tuple[Tensor, Tensor]:
    """The correction's factor, and a mask of where it differs from the ratio pi_old / mu_old."""
    if options.method == "none":
        factor = torch.ones_like(log_mismatch)
        return factor, torch.zeros_like(tokens.sampled)
    ratio = RATIOS[options.aggregation](log_mismatch, _groups(options.level, tokens))
    correct = CORRECTIONS[options.method]
    factor = correct(ratio, tokens.trajectory_id, tokens.sampled, options.lowest, options.cap)
    return factor, factor != ratio


def _groups(level: Level, tokens: Tokens) -> Tensor:
    """Group number of each token for aggregation. A forced token is a group of its own."""
    n = tokens.sampled.numel()
    own = torch.arange(n, device=tokens.sampled.device)
    if level == "token":
        return own
    group = tokens.chunk_id if level == "chunk" else tokens.trajectory_id
    return torch.where(tokens.sampled, group + n, own)
