"""Attention over a forest, registered with transformers under its own name.

On a CPU each run of the forest attends to its ancestors' runs and to itself through the ordinary
scaled-dot-product kernel: flex attention has no backward there, and dense masks over everything
are slower than padding. On a GPU flex attention with an interval test does it all in one kernel.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from attrs import field, frozen
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ale.errors import AleError
from ale_trainer_policy.tree import Tree

NAME = "ale_tree"
_MIN_WIDTH = 16
"""Numbers of a head that PyTorch's flex attention needs on a GPU."""
_KERNEL = {"FORCE_USE_FLEX_ATTENTION": True}
"""Below 128 tokens PyTorch would choose its kernel for decoding, and then find no configuration of
it for this mask."""


@frozen(kw_only=True, eq=False)
class AttentionPlan:
    """Index structures of attention over a forest, computed once per micro-batch."""

    lengths: tuple[int, ...]
    """Tokens of each run."""
    chains: tuple[tuple[int, ...], ...]
    """For each run its ancestors, the root first, and itself."""
    position: Tensor
    """(N,)"""
    last: Tensor | None
    """(N,), where flex attention is used: see `Tree.last`."""
    masks: dict[Any, Any] = field(factory=dict)
    """Masks computed so far, by run and sliding window."""


def make_plan(tree: Tree, device: torch.device) -> AttentionPlan:
    """Index structures for a forest."""
    starts = tree.runs()
    lengths = np.diff([*starts, len(tree.ids)])
    run_of = np.repeat(np.arange(len(starts)), lengths)
    chains: list[tuple[int, ...]] = []
    for number, start in enumerate(starts):
        above = tree.parent[start]
        chains.append((*(chains[run_of[above]] if above >= 0 else ()), number))
    flex = device.type == "cuda"
    return AttentionPlan(
        lengths=tuple(int(length) for length in lengths),
        chains=tuple(chains),
        position=torch.as_tensor(tree.position, device=device),
        last=torch.as_tensor(tree.last, device=device) if flex else None,
    )


def tree_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    *,
    tree: AttentionPlan | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Causal attention along the paths of a forest, as transformers calls it.

    Args:
        query: (1, heads, N, d); key and value (1, key-value heads, N, d).
        tree: passed to the model's forward as a keyword argument.

    Returns:
        (1, N, heads, d) and no weights.
    """
    if tree is None or softcap is not None or query.shape[0] != 1:
        raise AleError(
            "this model's attention does not support packing: tree (its layers do not receive "
            "the forest, or it caps its scores); set packing: padded"
        )
    if tree.last is not None:
        if query.shape[-1] < _MIN_WIDTH:
            raise AleError(
                f"on a GPU, packing: tree and packed need attention heads of at least {_MIN_WIDTH} "
                f"numbers; this model's have {query.shape[-1]}: set packing: padded"
            )
        return _flex(tree, query, key, value, scaling, sliding_window), None
    n_rep = query.shape[1] // key.shape[1]
    if n_rep > 1:
        key, value = key.repeat_interleave(n_rep, dim=1), value.repeat_interleave(n_rep, dim=1)
    # Split once instead of slicing per run: a slice's backward pass fills the whole sequence.
    queries, keys, values = (torch.split(x, list(tree.lengths), dim=2) for x in (query, key, value))
    found = []
    for number, chain in enumerate(tree.chains):
        alone = len(chain) == 1
        mask = _run_mask(tree, number, sliding_window, query.dtype)
        out = scaled_dot_product_attention(
            queries[number],
            keys[number] if alone else torch.cat([keys[i] for i in chain], dim=2),
            values[number] if alone else torch.cat([values[i] for i in chain], dim=2),
            attn_mask=mask,
            dropout_p=dropout,
            is_causal=mask is None and alone,
            scale=scaling,
        )
        found.append(out)
    return torch.cat(found, dim=2).transpose(1, 2).contiguous(), None


def _run_mask(
    tree: AttentionPlan, number: int, window: int | None, dtype: torch.dtype
) -> Tensor | None:
    """Bias on the scores of a run against its ancestors; None where the kernel needs none."""
    if (number, window) not in tree.masks:
        tree.masks[number, window] = _make_run_mask(tree, number, window, dtype)
    mask: Tensor | None = tree.masks[number, window]
    return mask


def _make_run_mask(
    tree: AttentionPlan, number: int, window: int | None, dtype: torch.dtype
) -> Tensor | None:
    chain, length = tree.chains[number], tree.lengths[number]
    total = sum(tree.lengths[i] for i in chain)
    windowed = window is not None and total > window
    if not windowed and (len(chain) == 1 or length == 1):
        return None
    device = tree.position.device
    # A chain holds every position from 0 on exactly once, so a token's depth is its index.
    here = torch.arange(total - length, total, device=device)[:, None]
    there = torch.arange(total, device=device)[None, :]
    seen = there <= here
    if window is not None:
        seen = seen & (here - there < window)
    blocked = torch.zeros(length, total, dtype=dtype, device=device)
    return blocked.masked_fill_(~seen, float("-inf"))


def seen_from(
    last: Tensor, position: Tensor, window: int | None
) -> Callable[[Any, Any, Any, Any], Any]:
    """The mask of flex attention: may token q of the forest see token k?

    k is an ancestor of q, or q itself, exactly where k <= q <= last[k].
    """

    def seen(batch: Any, head: Any, q: Any, k: Any) -> Any:
        on_path = (k <= q) & (q <= last[k])
        return on_path if window is None else on_path & (position[q] - position[k] < window)

    return seen


def _flex(
    tree: AttentionPlan,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    window: int | None,
) -> Tensor:
    assert tree.last is not None
    n = query.shape[2]
    if window not in tree.masks:
        seen = seen_from(tree.last, tree.position, window)
        make = compiled_block_mask()
        tree.masks[window] = make(seen, None, None, n, n, device=str(query.device))
    block_mask = tree.masks[window]
    gqa = query.shape[1] != key.shape[1]
    out: Tensor = _compiled_flex()(
        query,
        key,
        value,
        block_mask=block_mask,
        scale=scaling,
        enable_gqa=gqa,
        kernel_options=_KERNEL,
    )
    return out.transpose(1, 2).contiguous()


@cache
def _compiled_flex() -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    compiled: Callable[..., Tensor] = torch.compile(flex_attention, dynamic=True)
    return compiled


@cache
def compiled_block_mask() -> Callable[..., Any]:
    """`create_block_mask`, compiled: otherwise it has all N^2 entries of the mask in memory."""
    from torch.nn.attention.flex_attention import create_block_mask

    compiled: Callable[..., Any] = torch.compile(create_block_mask, dynamic=True)
    return compiled


@contextmanager
def tree_attention_enabled(model: Any) -> Iterator[None]:
    """Make the model's layers use `tree_attention` inside this block."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, tree_attention)
    before = model.config._attn_implementation
    model.config._attn_implementation = NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before
