"""Sampling of tokens, with log-probabilities under the sampling distribution."""

from collections.abc import Sequence

import torch
from attrs import frozen
from torch import Tensor


@frozen(kw_only=True)
class Draw:
    """Sampling parameters of one row's next token."""

    temperature: float
    """0 is greedy."""
    top_p: float
    """1 keeps all tokens; else the fewest likeliest ones whose probabilities sum to this."""
    uniform: float
    """A uniform random number in [0, 1)."""


def draw(logits: Tensor, draws: Sequence[Draw]) -> tuple[list[int], list[float]]:
    """One token per row, by inverting the cumulative distribution.

    Args:
        logits: ``[rows, vocabulary]``, float32; not changed.
        draws: one per row.

    Returns:
        Ids and natural log-probabilities, after temperature and top-p, renormalised. A greedy row
        has log-probability 0.
    """
    scaled = scale(logits, draws)
    logp = scaled.log_softmax(-1)
    # float64: over a large vocabulary a float32 sum loses the rare tokens.
    cumulative = logp.exp().cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    uniforms = [[one.uniform] for one in draws]
    target = torch.tensor(uniforms, dtype=torch.float64, device=logits.device) * total
    # Strictly below the total, so that no token of probability 0 is ever taken.
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    ids = torch.searchsorted(cumulative, target, right=True)
    chosen = logp.gather(1, ids)
    # Call tolist once for both: on a GPU each call waits for the device.
    both = torch.cat([ids.double(), chosen.double()], 1).tolist()
    return [int(row[0]) for row in both], [min(0.0, row[1]) for row in both]


def scale(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """Logits of the sampling distribution: temperature first, then top-p."""
    temperatures = [one.temperature for one in draws]
    if any(value != 1 for value in temperatures):
        greedy = [row for row, value in enumerate(temperatures) if value == 0]
        divisors = torch.tensor([[value or 1.0] for value in temperatures], device=logits.device)
        logits = logits / divisors
        if greedy:
            logits[greedy] = _likeliest(logits[greedy])
    some = [row for row, one in enumerate(draws) if one.top_p < 1 and one.temperature > 0]
    if some:
        logits = logits.clone()
        logits[some] = nucleus(logits[some], [draws[row].top_p for row in some])
    return logits


def nucleus(logits: Tensor, top_p: Sequence[float]) -> Tensor:
    """The logits, with -inf outside the smallest set of most likely tokens that reaches `top_p`.

    Args:
        logits: ``[rows, vocabulary]``.
        top_p: one per row, in (0, 1).

    Source: arXiv:1904.09751, Eq. 2.
    """
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probability = ordered.softmax(-1)
    before = probability.cumsum(-1) - probability
    limit = torch.tensor(list(top_p), device=logits.device)[:, None]
    # The likeliest token always stays, whatever rounding does to a tiny limit.
    outside = before >= limit
    outside[:, 0] = False
    return torch.empty_like(logits).scatter_(1, order, ordered.masked_fill(outside, float("-inf")))


def _likeliest(logits: Tensor) -> Tensor:
    best = logits.argmax(-1, keepdim=True)
    return torch.full_like(logits, float("-inf")).scatter_(1, best, 0.0)
