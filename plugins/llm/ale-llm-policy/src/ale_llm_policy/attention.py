"""Grouped-query attention over the KV cache.

On a CPU a row's result is bitwise independent of the rest of the batch, of the number of columns,
and of whether its tokens were computed one by one or together. Masked columns add exact zeros, but
the order of the other sums could differ. Products given to MKL therefore have at least four queries
and a multiple of 16 columns (`kv_cache.VECTOR`), and no sum goes over more than 192 columns at
once, as MKL splits longer sums at a position that depends on the number of columns.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

MIN_QUERIES = 4
"""With fewer rows MKL uses another kernel, whose results differ in the last bits."""
_CUT = 192
_MAX_SCORES = 1 << 23
"""Numbers in one table of scores, 32 MiB."""


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float) -> Tensor:
    """Attention of the new tokens over their rows.

    Query heads that share keys are folded into the queries of one head, so no key is repeated.

    Args:
        query: ``[rows, heads, tokens, width]``; one token, or a multiple of four.
        keys, values: ``[rows, kv_heads, columns, width]``.
        bias: ``[rows, 1, tokens, columns]``, added to the scores; the queries' type.
        scale: factor on the scores.

    Returns:
        ``[rows, heads, tokens, width]``.
    """
    rows, heads, tokens, width = query.shape
    groups = heads // keys.shape[1]
    folded = query.reshape(rows, keys.shape[1], groups * tokens, width)
    if tokens > 1:
        bias = bias.repeat(1, 1, groups, 1)
    if query.is_cuda:
        out = scaled_dot_product_attention(folded, keys, values, attn_mask=bias, scale=scale)
    else:
        out = _on_cpu(folded * scale, keys, values, bias)
    return out[:, :, : groups * tokens].reshape(rows, heads, tokens, values.shape[-1])


def _on_cpu(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    n = query.shape[2]
    if n < MIN_QUERIES:
        query = pad(query, (0, 0, 0, MIN_QUERIES - n))
    per_query = query.shape[0] * query.shape[1] * keys.shape[2]
    block = max(MIN_QUERIES, _MAX_SCORES // per_query // MIN_QUERIES * MIN_QUERIES)
    if n <= block:
        return _products(query, keys, values, bias)
    parts = [
        _products(query[:, :, a : a + block], keys, values, bias[:, :, a : a + block])
        for a in range(0, n, block)
    ]
    return torch.cat(parts, 2)


def _products(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    weights = torch.matmul(query, keys.transpose(-1, -2)).add_(bias).softmax(-1)
    mixed = torch.matmul(weights[..., :_CUT], values[:, :, :_CUT])
    for start in range(_CUT, keys.shape[2], _CUT):
        part = slice(start, start + _CUT)
        mixed += torch.matmul(weights[..., part], values[:, :, part])
    return mixed
