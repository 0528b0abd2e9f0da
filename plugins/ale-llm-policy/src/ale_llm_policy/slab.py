"""Keys and values of the rows that are being decoded, in memory that is reused.

Layout of a layer: ``[rows, heads, columns, width]``: all rows and heads are one batch of products.
Column c of a row belongs to its token c.
"""

from typing import Any

import torch
from attrs import frozen
from torch import Tensor

VECTOR = 16
"""Columns are looked at in multiples of this; see `attention`."""

Kept = list[tuple[Tensor, Tensor]]
"""Keys and values of one sequence, per layer: ``[heads, length, width]``."""


@frozen
class Step:
    """Which part of the slab a forward pass works on."""

    first: int
    """First row."""
    rows: int
    tokens: int
    """New tokens per row, padding included."""
    columns: int
    """Columns that are looked at: the longest row after the pass."""
    places: tuple[Tensor, Tensor]
    """``[rows * tokens]`` each: row and column of every new token."""


class Slab:
    """Grows by doubling; what is in it stays.

    Args:
        device: of the tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.rows = 0
        self.columns = 0
        self._layers: list[tuple[Tensor, Tensor]] = []

    def reserve(self, rows: int, columns: int) -> None:
        """Have room for at least so many rows, of so many tokens each."""
        if rows <= self.rows and columns <= self.columns:
            return
        old = slice(self.rows), slice(None), slice(self.columns)
        self.rows = max(self.rows, 1 << (rows - 1).bit_length())
        self.columns = max(self.columns, 256, 1 << (columns - 1).bit_length())
        for index, pair in enumerate(self._layers):
            keys, values = (self._new(each) for each in pair)
            keys[old], values[old] = pair
            self._layers[index] = (keys, values)

    def _new(self, like: Tensor) -> Tensor:
        # Zeros, not empty: what is masked must still be a number.
        shape = (self.rows, like.shape[-3], self.columns, like.shape[-1])
        return torch.zeros(shape, dtype=like.dtype, device=self._device)

    def step(self, first: int, starts: Tensor, longest: int, tokens: int) -> Step:
        """The place of the next `tokens` tokens of some rows.

        Args:
            first: row.
            starts: ``[rows]`` on the device, tokens that each row has already.
            longest: the largest of them.
        """
        rows = len(starts)
        columns = -(-(longest + tokens) // VECTOR) * VECTOR
        self.reserve(first + rows, columns)
        row = torch.arange(first, first + rows, device=self._device).repeat_interleave(tokens)
        column = starts[:, None] + torch.arange(tokens, device=self._device)
        return Step(first, rows, tokens, columns, (row, column.reshape(-1)))

    def write(self, layer: int, step: Step, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put the new tokens of a layer in.

        Args:
            keys, values: ``[rows * tokens, heads, width]``.

        Returns:
            Keys and values of the step's rows, ``[rows, heads, columns, width]``, views.
        """
        while layer >= len(self._layers):
            new_layer = (self._new(each.transpose(0, 1)) for each in (keys, values))
            self._layers.append((next(new_layer), next(new_layer)))
        rows = slice(step.first, step.first + step.rows)
        found = []
        for slab, new in zip(self._layers[layer], (keys, values), strict=True):
            slab[step.places[0], :, step.places[1]] = new
            found.append(slab[rows, :, : step.columns])
        return found[0], found[1]

    def take(self, row: int, length: int) -> Kept:
        """A copy of a row's first `length` tokens."""
        return [(k[row, :, :length].clone(), v[row, :, :length].clone()) for k, v in self._layers]

    def put(self, row: int, kept: Kept, length: int) -> None:
        """Begin a row with the first `length` tokens of what was taken."""
        self.reserve(row + 1, length)
        while len(self._layers) < len(kept):
            keys, values = kept[len(self._layers)]
            self._layers.append((self._new(keys), self._new(values)))
        for pair, old in zip(self._layers, kept, strict=True):
            for slab, tensor in zip(pair, old, strict=True):
                slab[row, :, :length] = tensor[:, :length]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first `length` tokens over another row."""
        for pair in self._layers:
            for slab in pair:
                slab[target, :, :length] = slab[source, :, :length]


def size(kept: Kept) -> int:
    """Bytes."""
    return sum(tensor.numel() * tensor.element_size() for pair in kept for tensor in pair)


def causal_bias(starts: Tensor, tokens: int, columns: int, window: int | None = None) -> Any:
    """What is added to attention scores: 0 where a token may look, else -inf.

    Args:
        starts: ``[rows]``, tokens before the new ones.
        tokens: new ones per row.
        columns: of the slab that are looked at.
        window: tokens that one sees, itself included; None sees all.

    Returns:
        ``[rows, 1, tokens, columns]``, float32.
    """
    own = starts[:, None, None, None] + torch.arange(tokens, device=starts.device)[:, None]
    column = torch.arange(columns, device=starts.device)
    hidden = column > own
    if window is not None:
        hidden |= column <= own - window
    return torch.zeros(hidden.shape, device=starts.device).masked_fill_(hidden, float("-inf"))
