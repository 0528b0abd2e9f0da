"""Log-probabilities from hidden states, one slice of positions at a time.

With a large vocabulary the logits take most of a step's memory. Here only one slice of positions
has logits at a time; the backward pass recomputes them slice by slice.

Some models, such as Gemma 2, Cohere and Granite, scale or cap the output of their output layer.
What a model's forward pass does there is recorded while it runs, and applied to each slice.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from attrs import define, field
from torch import Tensor
from torch.fx import Graph, GraphModule, Proxy
from torch.fx.proxy import TraceError
from torch.utils.checkpoint import checkpoint

from ale.errors import InputError
from ale_trainer_policy.samples import Ints

Project = Callable[[Tensor], Tensor]
"""Maps hidden states to logits."""
_CHECKED = 5
"""Number of tokens compared: several slices of two, and one more."""
_NOT_SLICED = (TypeError, ValueError, IndexError, AttributeError, RuntimeError, TraceError)
"""Raised by code that does something to logits that can't be recorded or applied to a slice."""


@define(eq=False)
class LogprobReader:
    """Log-probabilities and entropies of T tokens, from the hidden states that predict them."""

    at: Ints
    """Index of the hidden state of each token, over all leading dimensions: (T,)."""
    ids: Ints
    """Ids of the tokens: (T,)."""
    rows: int
    """Number of positions in one slice."""
    temperature: float
    entropy_gradient: bool = False
    logp: Tensor = field(init=False)
    """log pi, nats, (T,), float32 or wider."""
    entropy: Tensor = field(init=False)
    """Entropy of the distributions, nats, (T,); with a gradient if asked for."""

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
            # Last, so that recomputation stops before the entropy where it has no gradient.
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
    """Compare a model's logits, a slice at a time, with those of its own forward pass.

    Raises:
        InputError: they differ, or can't be sliced.
    """
    # A wrapper around a transformers model may lack this method.
    if getattr(model, "get_output_embeddings", lambda: None)() is None:
        raise _refused(model, "come from no output layer that it names")
    size = model.config.get_text_config().vocab_size
    device = next(model.parameters()).device
    ids = torch.linspace(0, size - 1, _CHECKED, device=device).long()[None]
    found: list[Tensor] = []

    def read(hidden: Tensor, project: Project) -> Tensor:
        # Slices as the reader cuts them: of positions in one dimension.
        found.extend(project(each) for each in torch.split(hidden.flatten(0, -2), 2))
        return hidden

    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits.flatten(0, -2)
        try:
            with read_instead(model, read):
                model(input_ids=ids, use_cache=False)
            sliced = torch.cat(found)
        except _NOT_SLICED as error:
            raise _refused(model, f"can't be computed in slices: {error}") from error
    # Matrix products of different shapes round differently.
    bound = max(1e-4, 4 * torch.finfo(whole.dtype).eps) * float(whole[whole.isfinite()].abs().max())
    if sliced.shape != whole.shape or not torch.allclose(sliced, whole, rtol=0, atol=bound):
        raise _refused(model, "differ where they are computed in slices")


def _refused(model: Any, what: str) -> InputError:
    message = f"the logits of {type(model).__name__} {what}"
    expected = "logits_mb: null, for this model"
    return InputError.of(message, path="trainer.logits_mb", expected=expected)


@contextmanager
def read_instead(model: Any, read: Callable[[Tensor, Project], Tensor]) -> Iterator[None]:
    """Inside, the model's forward pass returns the result of `read` as its logits.

    Args:
        read: gets the output layer's input and the function from there to logits: the model's own
            output layer, adapters and shards included, and what the model does to its output.
            `LogprobReader.read` is one.
    """
    head = model.get_output_embeddings()
    project, forward = head.forward, model.forward

    def recorded(*arguments: Any, **named: Any) -> Any:
        graph = Graph()
        logits = Proxy(graph.placeholder("logits"))
        inputs: list[Tensor] = []

        def taken(hidden: Tensor) -> Proxy:
            inputs.append(hidden)
            return logits

        with _replaced(head, taken):
            out = forward(*arguments, **named)
        (hidden,) = inputs
        if out.logits is logits:
            out.logits = read(hidden, project)
            return out
        graph.output(_node(out.logits))
        change = GraphModule({}, graph)
        out.logits = read(hidden, lambda some: change(project(some)))
        return out

    with _replaced(model, recorded):
        yield


def _node(logits: Any) -> Any:
    """The recorded node of logits. Raises TypeError."""
    if not isinstance(logits, Proxy):
        raise TypeError("they are not made from what its output layer gives")
    return logits.node


@contextmanager
def _replaced(module: Any, forward: Any) -> Iterator[None]:
    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before
