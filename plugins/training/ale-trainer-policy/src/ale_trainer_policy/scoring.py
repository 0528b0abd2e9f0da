"""Log-probabilities of a datum's tokens under a model, as a forest or row by row."""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, Literal

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from ale.errors import AleError
from ale_trainer_policy.attention import make_plan, tree_attention_enabled
from ale_trainer_policy.logit_slices import (
    LogprobReader,
    logits_are_head_output,
    logprobs_for_logits,
)
from ale_trainer_policy.options import Packing
from ale_trainer_policy.samples import Ints
from ale_trainer_policy.tree import Datum


@frozen(kw_only=True, eq=False)
class Scored:
    """Results for the T target tokens of a datum, in its order."""

    logp: Tensor
    """log pi, nats, (T,), float32 or wider."""
    entropy: Tensor
    """Of the token's distribution, nats, (T,); with a gradient if asked for."""
    computed: int
    """Tokens that went through the model, padding included."""


def score(
    model: Any,
    datum: Datum,
    *,
    packing: Packing = "tree",
    temperature: float = 1.0,
    padding: Literal["left", "right"] = "right",
    weights: Mapping[str, Tensor] | None = None,
    logits_mb: float | None = None,
    entropy_gradient: bool = False,
) -> Scored:
    """Run the model once over a datum.

    Args:
        model: a transformers causal model.
        datum: with at least one target token.
        packing: ``tree`` and ``packed`` compute each token of the forest once, ``padded`` every row
            in full.
        temperature: logits are divided by it, as the sampler does.
        padding: the side on which short rows are filled, for ``padded``; changes nothing.
        weights: parameters to use instead of the model's own, by name.
        logits_mb: hold logits of so many MiB at once, in fp32; None holds all. A model that changes
            its logits after the output layer holds all of them.
        entropy_gradient: entropies carry a gradient too.

    Raises:
        AleError: a token is not in the model's vocabulary.
    """
    highest, size = int(datum.tree.ids.max()), int(model.config.vocab_size)
    if highest >= size or int(datum.tree.ids.min()) < 0:
        raise AleError(
            f"token id {highest} is outside the model's vocabulary of {size}: these episodes were "
            "sampled from another model"
        )
    device = next(model.parameters()).device
    tree = packing != "padded"
    inputs, at = _tree_inputs(datum, device) if tree else _row_inputs(datum, device, padding)
    rows = sys.maxsize if logits_mb is None else max(1, int(logits_mb * 2**20 / (4 * size)))
    ids = datum.tree.ids[datum.token]
    reader = LogprobReader(
        at=at, ids=ids, rows=rows, temperature=temperature, entropy_gradient=entropy_gradient
    )
    with tree_attention_enabled(model) if tree else nullcontext():
        whole = logits_mb is None or not logits_are_head_output(model)
        _read(model, reader, weights, {**inputs, "use_cache": False}, whole=whole)
    computed = inputs["input_ids"].numel()
    return Scored(logp=reader.logp, entropy=reader.entropy, computed=computed)


def _read(
    model: Any,
    reader: LogprobReader,
    weights: Mapping[str, Tensor] | None,
    inputs: dict[str, Any],
    *,
    whole: bool,
) -> None:
    with nullcontext() if whole else logprobs_for_logits(model, reader):
        if weights is None:
            logits = model(**inputs).logits
        else:
            logits = torch.func.functional_call(model, dict(weights), (), inputs).logits
    if whole:
        reader.rows = sys.maxsize
        reader.read(logits, lambda all_of_them: all_of_them)
    assert whole or logits is reader.logp, "models are checked when they are attached"


def _tree_inputs(datum: Datum, device: torch.device) -> tuple[dict[str, Any], Ints]:
    tree = datum.tree
    # A token's logits are at its parent; at a fork several tokens share one parent.
    needed, at = np.unique(tree.parent[datum.token], return_inverse=True)
    inputs = {
        "input_ids": torch.as_tensor(tree.ids, device=device)[None],
        "position_ids": torch.as_tensor(tree.position, device=device)[None],
        "logits_to_keep": torch.as_tensor(needed, device=device),
        "tree": make_plan(tree, device),
    }
    return inputs, at


def _row_inputs(datum: Datum, device: torch.device, padding: str) -> tuple[dict[str, Any], Ints]:
    rows = [row for sample in datum.samples for row in sample.rows]
    longest = max(len(row) for row in rows)
    ids = np.zeros((len(rows), longest), np.int64)
    real = np.zeros((len(rows), longest), np.int64)
    shift = np.zeros(len(rows), np.int64)
    for number, row in enumerate(rows):
        shift[number] = longest - len(row) if padding == "left" else 0
        ids[number, shift[number] : shift[number] + len(row)] = row
        real[number, shift[number] : shift[number] + len(row)] = 1
    which, where = _row_targets(datum)
    positions = np.maximum(0, real.cumsum(1) - 1)
    # Logits are only computed for columns with a target token in some row.
    needed, column = np.unique(where + shift[which] - 1, return_inverse=True)
    inputs = {
        "input_ids": torch.as_tensor(ids, device=device),
        "attention_mask": torch.as_tensor(real, device=device),
        "position_ids": torch.as_tensor(positions, device=device),
        "logits_to_keep": torch.as_tensor(needed, device=device),
    }
    return inputs, which * len(needed) + column


def _row_targets(datum: Datum) -> tuple[Ints, Ints]:
    """For each target token: its row among those of all samples, and its index there."""
    first = np.cumsum([0, *(len(sample.rows) for sample in datum.samples)])
    which = [sample.row + first[number] for number, sample in enumerate(datum.samples)]
    return np.concatenate(which), np.concatenate([sample.at for sample in datum.samples])
