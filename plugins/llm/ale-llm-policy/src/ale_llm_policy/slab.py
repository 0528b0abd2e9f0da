"""Keys and values of the rows that are being decoded, in memory that is reused.

Layout of a layer: values ``[rows, heads, columns, width]``, keys ``[rows, heads, width, columns]``:
all rows and heads are one batch of products, and the keys lie as a product with a few queries reads
them (a third faster on a CPU than the other way). Column c of a row belongs to its token c.
"""

from collections.abc import Sequence
from typing import Any

import torch
from attrs import Factory, frozen
from torch import Tensor

VECTOR = 16
"""Columns are looked at in multiples of this; see `attention`."""

Kept = list[tuple[Tensor, Tensor]]
"""Keys and values of a sequence, per layer: ``[heads, width, length], [heads, length, width]``."""


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
    row: Tensor
    """``[rows * tokens, 1]``, of every new token."""
    column: Tensor
    """Likewise."""
    places: dict[tuple[int, ...], Tensor] = Factory(dict)
    """Where in a flattened layer of some shape the new tokens go; most layers have the same."""


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
        old_rows, old_columns = self.rows, self.columns
        self.rows = max(self.rows, 1 << (rows - 1).bit_length())
        self.columns = max(self.columns, 256, 1 << (columns - 1).bit_length())
        for index, pair in enumerate(self._layers):
            keys, values = self._new(*pair, pair[0].shape[1:3], pair[1].shape[1::2])
            keys[:old_rows, ..., :old_columns] = pair[0]
            values[:old_rows, :, :old_columns] = pair[1]
            self._layers[index] = (keys, values)

    def _new(
        self, keys: Tensor, values: Tensor, key_size: Sequence[int], value_size: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """A layer like these, of these heads and widths."""
        # Zeros, not empty: what is masked must still be a number.
        n_keys, key_width = key_size
        n_values, value_width = value_size
        return (
            keys.new_zeros((self.rows, n_keys, key_width, self.columns)),
            values.new_zeros((self.rows, n_values, self.columns, value_width)),
        )

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
        return Step(first, rows, tokens, columns, row[:, None], column.reshape(-1, 1))

    def write(self, layer: int, step: Step, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Put the new tokens of a layer in.

        Args:
            keys, values: ``[rows * tokens, heads, width]``.

        Returns:
            Keys and values of the step's rows, ``[rows, heads, columns, width]``, views.
        """
        while layer >= len(self._layers):
            self._layers.append(self._new(keys, values, keys.shape[1:], values.shape[1:]))
        own_keys, own_values = self._layers[layer]
        own_keys.view(-1).index_copy_(0, self._key_places(step, own_keys), keys.reshape(-1))
        heads = own_values.flatten(0, 2)
        heads.index_copy_(0, self._value_places(step, own_values), values.flatten(0, 1))
        rows = slice(step.first, step.first + step.rows)
        return (
            own_keys[rows, :, :, : step.columns].transpose(-1, -2),
            own_values[rows, :, : step.columns],
        )

    def _key_places(self, step: Step, layer: Tensor) -> Tensor:
        _, heads, width, columns = layer.shape
        places = step.places.get((heads, width))
        if places is None:
            line = torch.arange(heads * width, device=self._device)
            places = ((step.row * heads * width + line) * columns + step.column).reshape(-1)
            step.places[heads, width] = places
        return places

    def _value_places(self, step: Step, layer: Tensor) -> Tensor:
        _, heads, columns, _ = layer.shape
        places = step.places.get((heads,))
        if places is None:
            head = torch.arange(heads, device=self._device)
            places = ((step.row * heads + head) * columns + step.column).reshape(-1)
            step.places[(heads,)] = places
        return places

    def take(self, row: int, length: int) -> Kept:
        """A copy of a row's first `length` tokens."""
        return [(k[row, ..., :length].clone(), v[row, :, :length].clone()) for k, v in self._layers]

    def put(self, row: int, kept: Kept, length: int) -> None:
        """Begin a row with the first `length` tokens of what was taken."""
        self.reserve(row + 1, length)
        while len(self._layers) < len(kept):
            keys, values = kept[len(self._layers)]
            self._layers.append(self._new(keys, values, keys.shape[:2], values.shape[::2]))
        for (keys, values), (old_keys, old_values) in zip(self._layers, kept, strict=True):
            keys[row, ..., :length] = old_keys[..., :length]
            values[row, :, :length] = old_values[:, :length]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first `length` tokens over another row."""
        for keys, values in self._layers:
            keys[target, ..., :length] = keys[source, ..., :length]
            values[target, :, :length] = values[source, :, :length]


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
