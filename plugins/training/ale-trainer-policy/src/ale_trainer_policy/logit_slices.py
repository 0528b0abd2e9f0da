"""Log-probabilities from hidden states, one slice of positions at a time.

With a large vocabulary the logits take most of a step's memory. Here only one slice of positions
has logits at a time; the backward pass recomputes them slice by slice.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from attrs import define, field
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ale.errors import InputError, Problem
from ale_trainer_policy.samples import Ints

Project = Callable[[Tensor], Tensor]
"""Hidden states to logits."""
_AFTERWARDS = ("final_logit_softcapping", "logit_scale", "logits_scaling")
"""Options of transformers' models that change logits after the output layer."""


@define(eq=False)
class LogprobReader:
    """Log-probabilities and entropies of T tokens, from the hidden states that predict them."""

    at: Ints
    """Index of the hidden state of each token, over all leading dimensions: (T,)."""
    ids: Ints
    """Of the tokens: (T,)."""
    rows: int
    """Positions of one slice."""
    temperature: float
    entropy_gradient: bool = False
    logp: Tensor = field(init=False)
    """log pi, nats, (T,), float32 or wider."""
    entropy: Tensor = field(init=False)
    """Of the distributions, nats, (T,); with a gradient if asked for."""

    def read(self, hidden: Tensor, project: Project) -> Tensor:
        """Compute and return `logp`; sets `entropy` too.

        Args:
            hidden: (..., width); only positions that predict a target are projected.
            project: called once per slice, and once more in the backward pass if there are
                several slices.
        """
        flat = hidden.flatten(0, -2)
        positions, at = np.unique(self.at, return_inverse=True)
        order = np.argsort(at, kind="stable")
        starts = range(0, len(positions), self.rows)
        ends = np.searchsorted(at[order], [*starts[1:], len(positions)])
        logps, entropies = [], []
        for start, tokens in zip(starts, np.split(order, ends[:-1]), strict=True):
            chosen = _tensor(positions[start : start + self.rows], flat)
            here, ids = _tensor(at[tokens] - start, flat), _tensor(self.ids[tokens], flat)
            logp, entropy = self._slice(project, flat[chosen], here, ids, again=len(starts) > 1)
            logps.append(logp)
            entropies.append(entropy)
        back = _tensor(np.argsort(order), flat)
        self.entropy = torch.cat(entropies)[back]
        self.logp = torch.cat(logps)[back]
        return self.logp

    def _slice(
        self, project: Project, hidden: Tensor, at: Tensor, ids: Tensor, *, again: bool
    ) -> tuple[Tensor, Tensor]:
        def computed(hidden: Tensor) -> tuple[Tensor, Tensor]:
            logits = project(hidden)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            if self.temperature != 1.0:
                logits = logits / self.temperature
            scores = torch.log_softmax(logits, dim=-1)
            logp = scores[at, ids]
            # Last, so that recomputation stops before it where it has no gradient.
            with torch.set_grad_enabled(self.entropy_gradient and torch.is_grad_enabled()):
                entropy = -(scores.exp() * scores).sum(-1)[at]
            return logp, entropy

        if again and torch.is_grad_enabled():
            found: tuple[Tensor, Tensor] = checkpoint(computed, hidden, use_reentrant=False)
            return found
        return computed(hidden)


def _tensor(array: Ints, like: Tensor) -> Tensor:
    return torch.as_tensor(array, device=like.device)


def check_head(model: Any) -> None:
    """Run a model over one token, to check that its logits are its output layer's result.

    Raises:
        InputError: they are not, so they can't be sliced.
    """
    if not logits_are_head_output(model):
        return
    nothing = np.zeros(1, np.int64)
    reader = LogprobReader(at=nothing, ids=nothing, rows=1, temperature=1.0)
    ids = torch.zeros((1, 1), dtype=torch.int64, device=next(model.parameters()).device)
    with torch.no_grad(), logprobs_for_logits(model, reader):
        logits = model(input_ids=ids, use_cache=False).logits
    if logits is not reader.logp:
        message = f"{type(model).__name__} changes its logits after the output layer"
        expected = "logits_mb: null, for this model"
        raise InputError([Problem(path="trainer.logits_mb", message=message, expected=expected)])


def logits_are_head_output(model: Any) -> bool:
    """Are a model's logits its output layer's result, without scaling or soft caps?"""
    config = model.config.get_text_config()
    changed = any(getattr(config, name, None) is not None for name in _AFTERWARDS)
    # A wrapper around a model of transformers may lack this method.
    head = getattr(model, "get_output_embeddings", lambda: None)()
    return head is not None and not changed


@contextmanager
def logprobs_for_logits(model: Any, reader: LogprobReader) -> Iterator[None]:
    """Inside, the model's forward pass returns the reader's log-probabilities as its logits.

    The model's own output layer is used, adapters and shards included, on slices of its input.
    """
    head = model.get_output_embeddings()
    project = head.forward
    before = vars(head).get("forward")
    head.forward = lambda hidden: reader.read(hidden, project)
    try:
        yield
    finally:
        if before is None:
            del head.forward
        else:
            head.forward = before
