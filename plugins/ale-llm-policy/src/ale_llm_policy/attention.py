"""Grouped-query attention over the slab."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

LEAST_QUERIES = 4
"""Rows of a product below which MKL takes another kernel, whose last bits differ."""


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float) -> Tensor:
    """Attention of the new tokens over their rows.

    The query heads that share keys become more queries of one head: no key is repeated.

    Args:
        query: ``[rows, heads, tokens, width]``.
        keys, values: ``[rows, kv_heads, columns, width]``.
        bias: ``[rows, 1, tokens, columns]``, added to the scores.
        scale: of the scores.

    Returns:
        ``[rows, heads, tokens, width]``.
    """
    rows, heads, tokens, width = query.shape
    groups = heads // keys.shape[1]
    folded = query.reshape(rows, keys.shape[1], groups * tokens, width)
    if tokens > 1 and groups > 1:
        bias = bias.repeat(1, 1, groups, 1)
    lacking = LEAST_QUERIES - groups * tokens
    if lacking > 0:
        folded = torch.nn.functional.pad(folded, (0, 0, 0, lacking))
        bias = bias[:, :, :1] if tokens == 1 else torch.nn.functional.pad(bias, (0, 0, 0, lacking))
    out = scaled_dot_product_attention(
        folded, keys, values, attn_mask=bias.to(query.dtype), scale=scale
    )
    return out[:, :, : groups * tokens].reshape(rows, heads, tokens, values.shape[-1])
