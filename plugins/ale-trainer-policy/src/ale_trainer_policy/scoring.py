"""Log-probabilities of a datum's tokens under a model: as a forest, or row by row."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from ale.errors import AleError
from ale_trainer_policy.attention import plan_of, walking
from ale_trainer_policy.samples import Ints
from ale_trainer_policy.tree import Datum

Packing = Literal["tree", "padded"]


@frozen(kw_only=True, eq=False)
class Scored:
    """Of the T tokens of a datum, in its order."""

    logp: Tensor
    """log pi, nats, (T,), float32 or wider."""
    entropy: Tensor
    """Of the distribution that the token was drawn from, nats, (T,), without a gradient."""
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
) -> Scored:
    """Run the model once over a datum.

    Args:
        model: a transformers causal model.
        datum: with at least one token to be trained on.
        packing: ``tree`` computes each token of the forest once, ``padded`` every row in full.
        temperature: logits are divided by it, as the sampler does.
        padding: the side on which short rows are filled, for ``padded``; changes nothing.
        weights: parameters to use in the place of the model's own, by name.

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
    walk = _by_tree if packing == "tree" else _by_rows
    logits, at, computed = walk(model, datum, device, padding, weights)
    dtype = torch.promote_types(logits.dtype, torch.float32)
    scores = torch.log_softmax(logits.to(dtype) / temperature, dim=-1)
    wanted = torch.as_tensor(datum.tree.ids[datum.token], device=device)
    with torch.no_grad():
        entropy = -(scores.exp() * scores).sum(-1)[at]
    return Scored(logp=scores[at, wanted], entropy=entropy, computed=computed)


def _call(model: Any, weights: Mapping[str, Tensor] | None, **inputs: Any) -> Any:
    if weights is None:
        return model(**inputs, use_cache=False)
    return torch.func.functional_call(model, dict(weights), (), {**inputs, "use_cache": False})


def _by_tree(
    model: Any, datum: Datum, device: torch.device, _: str, weights: Mapping[str, Tensor] | None
) -> tuple[Tensor, Tensor, int]:
    tree = datum.tree
    # The logits of a token stand at its parent, of which a fork has several children.
    needed, at = np.unique(tree.parent[datum.token], return_inverse=True)
    with walking(model):
        out = _call(
            model,
            weights,
            input_ids=torch.as_tensor(tree.ids, device=device)[None],
            position_ids=torch.as_tensor(tree.position, device=device)[None],
            logits_to_keep=torch.as_tensor(needed, device=device),
            tree=plan_of(tree, device),
        )
    return out.logits[0], torch.as_tensor(at, device=device), len(tree.ids)


def _by_rows(
    model: Any,
    datum: Datum,
    device: torch.device,
    padding: str,
    weights: Mapping[str, Tensor] | None,
) -> tuple[Tensor, Tensor, int]:
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
    # Only columns that some row is trained on get logits, as any trainer would do it.
    needed, column = np.unique(where + shift[which] - 1, return_inverse=True)
    out = _call(
        model,
        weights,
        input_ids=torch.as_tensor(ids, device=device),
        attention_mask=torch.as_tensor(real, device=device),
        position_ids=torch.as_tensor(positions, device=device),
        logits_to_keep=torch.as_tensor(needed, device=device),
    )
    at = torch.as_tensor(which * len(needed) + column, device=device)
    return out.logits.flatten(0, 1), at, ids.size


def _row_targets(datum: Datum) -> tuple[Ints, Ints]:
    """Of each token to be trained on: its row among those of all samples, and its index there."""
    first = np.cumsum([0, *(len(sample.rows) for sample in datum.samples)])
    which = [sample.row + first[number] for number, sample in enumerate(datum.samples)]
    return np.concatenate(which), np.concatenate([sample.at for sample in datum.samples])
