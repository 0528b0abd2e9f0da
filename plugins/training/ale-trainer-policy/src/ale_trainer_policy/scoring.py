"""Log-probabilities of a datum's tokens under a model, as a forest or row by row."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from ale_trainer_policy.attention import make_plan, tree_attention_enabled
from ale_trainer_policy.logit_slices import LogprobReader, read_instead
from ale_trainer_policy.options import Packing
from ale_trainer_policy.placement import device_of
from ale_trainer_policy.samples import Ints
from ale_trainer_policy.tree import Datum
from ale_training.tokens import check_tokens


@frozen(kw_only=True, eq=False)
class Scored:
    """Results for the T target tokens of a datum, in its order."""

    logp: Tensor
    """log pi, nats, (T,), float32 or wider."""
    entropy: Tensor
    """Entropy of the token's distribution, nats, (T,); with a gradient if asked for."""
    computed: int
    """Tokens that went through the model, padding included."""
    states: Tensor | None = None
    """The last hidden states before each target, and those of `Datum.ends`: (T + E, width)."""


def score(
    model: Any,
    datum: Datum,
    *,
    packing: Packing = "tree",
    temperature: float = 1.0,
    weights: Mapping[str, Tensor] | None = None,
    logits_mb: float | None = None,
    entropy_gradient: bool = False,
    states: bool = False,
) -> Scored:
    """Run the model once over a datum.

    Args:
        model: a transformers causal model.
        datum: with at least one target token.
        packing: ``tree`` and ``packed`` compute each token of the forest once, ``padded`` computes
            every row in full.
        temperature: logits are divided by it, as the sampler does.
        weights: parameters to use instead of the model's own, by name.
        logits_mb: hold at most this many MiB of fp32 logits at once; None holds all.
        entropy_gradient: entropies carry a gradient too.
        states: return hidden states too, with their gradient.

    Raises:
        AleError: the model can't read these tokens; see `check_tokens`.
    """
    tree = datum.tree
    check_tokens(
        model,
        lowest=int(tree.ids.min()),
        highest=int(tree.ids.max()),
        longest=int(tree.position.max()) + 1,
    )
    inputs, row, column = _inputs(datum, device_of(model), packing)
    # Logits are computed only for columns that predict a target token in some row.
    needed, which = np.unique(column, return_inverse=True)
    at = row * len(needed) + which
    inputs["logits_to_keep"] = torch.as_tensor(needed, device=inputs["input_ids"].device)
    vocabulary = int(model.config.get_text_config().vocab_size)
    rows = sys.maxsize if logits_mb is None else max(1, int(logits_mb * 2**20 / (4 * vocabulary)))
    ids = tree.ids[datum.token]
    reader = LogprobReader(
        at=at[: datum.n_targets],
        ids=ids,
        rows=rows,
        temperature=temperature,
        entropy_gradient=entropy_gradient,
    )
    with packed_attention(model, packing), _hidden_states(model, wanted=states) as hidden:
        _read(model, reader, weights, inputs, whole=logits_mb is None)
    return Scored(
        logp=reader.logp,
        entropy=reader.entropy,
        computed=inputs["input_ids"].numel(),
        states=hidden[0].flatten(0, -2)[torch.as_tensor(at)] if states else None,
    )


def packed_attention(model: Any, packing: Packing) -> AbstractContextManager[Any]:
    """The attention that this packing needs, in the model's layers; None for no model."""
    unchanged = model is None or packing == "padded"
    return nullcontext() if unchanged else tree_attention_enabled(model)


@contextmanager
def _hidden_states(model: Any, *, wanted: bool) -> Iterator[list[Tensor]]:
    """Collect the output layer's inputs inside this block."""
    found: list[Tensor] = []
    if not wanted:
        yield found
        return
    layer = model.get_output_embeddings()
    hook = layer.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
    try:
        yield found
    finally:
        hook.remove()


def value_states(critic: Any, datum: Datum, *, packing: Packing = "tree") -> Tensor:
    """V of the states before each target, and of the states of `Datum.ends`: (T + E,).

    Args:
        critic: one with its own model.
        packing: as for `score`.
    """
    inputs, row, column = _inputs(datum, device_of(critic), packing)
    at = torch.as_tensor(row * inputs["input_ids"].shape[1] + column)
    with packed_attention(critic.model, packing):
        values: Tensor = critic(None, inputs, at.to(inputs["input_ids"].device))
    return values


def _read(
    model: Any,
    reader: LogprobReader,
    weights: Mapping[str, Tensor] | None,
    inputs: dict[str, Any],
    *,
    whole: bool,
) -> None:
    with nullcontext() if whole else read_instead(model, reader.read):
        if weights is None:
            logits = model(**inputs).logits
        else:
            logits = torch.func.functional_call(model, dict(weights), (), inputs).logits
    if whole:
        reader.read(logits, lambda all_of_them: all_of_them)
    assert whole or logits is reader.logp, "models are checked when they are attached"


def _inputs(
    datum: Datum, device: torch.device, packing: Packing
) -> tuple[dict[str, Any], Ints, Ints]:
    """A model's inputs, and the row and column of each of the T + E states: those before each
    target, which predict it, and those of `Datum.ends`.
    """
    if packing == "padded":
        return _row_inputs(datum, device)
    tree = datum.tree
    inputs = {
        "input_ids": torch.as_tensor(tree.ids, device=device)[None],
        "position_ids": torch.as_tensor(tree.position, device=device)[None],
        "tree": make_plan(tree, device),
        "use_cache": False,
    }
    # At a fork several tokens share one parent.
    column = np.concatenate([tree.parent[datum.token], datum.token[datum.ends]])
    return inputs, np.zeros_like(column), column


def _row_inputs(datum: Datum, device: torch.device) -> tuple[dict[str, Any], Ints, Ints]:
    """Every row in full, filled up on the right."""
    rows = [row for sample in datum.samples for row in sample.rows]
    longest = max(len(row) for row in rows)
    ids = np.zeros((len(rows), longest), np.int64)
    real = np.zeros((len(rows), longest), np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        real[number, : len(row)] = 1
    # Of each target, its row among those of all samples, and its index in that row.
    first = np.cumsum([0, *(len(sample.rows) for sample in datum.samples)])
    which = np.concatenate([each.row + first[i] for i, each in enumerate(datum.samples)])
    where = np.concatenate([sample.at for sample in datum.samples])
    positions = np.maximum(0, real.cumsum(1) - 1)
    inputs = {
        "input_ids": torch.as_tensor(ids, device=device),
        "attention_mask": torch.as_tensor(real, device=device),
        "position_ids": torch.as_tensor(positions, device=device),
        "use_cache": False,
    }
    row_of = np.concatenate([which, which[datum.ends]])
    return inputs, row_of, np.concatenate([where - 1, where[datum.ends]])
