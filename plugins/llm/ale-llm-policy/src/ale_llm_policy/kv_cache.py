"""The KV cache: keys and values of the rows being decoded, in preallocated memory.

Layout of a layer: values ``[rows, heads, columns, width]``, keys ``[rows, heads, width, columns]``:
all rows and heads are one batched product, and keys are stored in the order in which a product with
a few queries reads them (a third faster on a CPU than the transposed layout). Column c of a row
belongs to its token c.
"""

from collections.abc import Sequence
from typing import Any

import torch
from attrs import Factory, frozen
from torch import Tensor

VECTOR = 16
"""The number of columns in attention is a multiple of this number; see `attention`."""

KVTensors = list[tuple[Tensor, Tensor]]
"""Keys and values of a sequence, per layer: ``[heads, width, length], [heads, length, width]``."""


@frozen
class CacheStep:
    """The part of the cache that a forward pass reads and writes."""

    first: int
    """First row."""
    rows: int
    tokens: int
    """New tokens per row, padding included."""
    columns: int
    """Columns read: the length of the longest row after the pass, rounded up."""
    row: Tensor
    """``[rows * tokens, 1]``: row of every new token."""
    column: Tensor
    """``[rows * tokens, 1]``: column of every new token."""
    places: dict[tuple[int, ...], Tensor] = Factory(dict)
    """Flat indices of the new tokens, by layer shape; most layers share one."""


class KVCache:
    """Preallocated keys and values of all layers; grows by doubling.

    Args:
        device: the tensors' device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.rows = 0
        self.columns = 0
        self._layers: list[tuple[Tensor, Tensor]] = []

    def reserve(self, rows: int, columns: int) -> None:
        """Grow to at least `rows` rows of `columns` tokens each."""
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
        """A zeroed layer with the dtype of `keys` and `values`, and these heads and widths."""
        # Zeros, not empty: masked entries must be finite.
        n_keys, key_width = key_size
        n_values, value_width = value_size
        return (
            keys.new_zeros((self.rows, n_keys, key_width, self.columns)),
            values.new_zeros((self.rows, n_values, self.columns, value_width)),
        )

    def step(self, first: int, starts: Tensor, longest: int, tokens: int) -> CacheStep:
        """The positions of the next `tokens` tokens of some rows.

        Args:
            first: first row.
            starts: ``[rows]`` on the device, current length of each row.
            longest: the largest of these lengths.
        """
        rows = len(starts)
        columns = -(-(longest + tokens) // VECTOR) * VECTOR
        self.reserve(first + rows, columns)
        row = torch.arange(first, first + rows, device=self._device).repeat_interleave(tokens)
        column = starts[:, None] + torch.arange(tokens, device=self._device)
        return CacheStep(first, rows, tokens, columns, row[:, None], column.reshape(-1, 1))

    def write(
        self, layer: int, step: CacheStep, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Write a layer's keys and values of the new tokens.

        Args:
            keys, values: ``[rows * tokens, heads, width]``.

        Returns:
            Views of keys and values of the step's rows, ``[rows, heads, columns, width]``.
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

    def _key_places(self, step: CacheStep, layer: Tensor) -> Tensor:
        _, heads, width, columns = layer.shape
        places = step.places.get((heads, width))
        if places is None:
            line = torch.arange(heads * width, device=self._device)
            places = ((step.row * heads * width + line) * columns + step.column).reshape(-1)
            step.places[heads, width] = places
        return places

    def _value_places(self, step: CacheStep, layer: Tensor) -> Tensor:
        _, heads, columns, _ = layer.shape
        places = step.places.get((heads,))
        if places is None:
            head = torch.arange(heads, device=self._device)
            places = ((step.row * heads + head) * columns + step.column).reshape(-1)
            step.places[(heads,)] = places
        return places

    def copy_out(self, row: int, length: int) -> KVTensors:
        """Copy keys and values of a row's first `length` tokens out of the cache."""
        return [(k[row, ..., :length].clone(), v[row, :, :length].clone()) for k, v in self._layers]

    def copy_in(self, row: int, tensors: KVTensors, length: int) -> None:
        """Set a row's first `length` tokens from a copy."""
        self.reserve(row + 1, length)
        while len(self._layers) < len(tensors):
            keys, values = tensors[len(self._layers)]
            self._layers.append(self._new(keys, values, keys.shape[:2], values.shape[::2]))
        for (keys, values), (old_keys, old_values) in zip(self._layers, tensors, strict=True):
            keys[row, ..., :length] = old_keys[..., :length]
            values[row, :, :length] = old_values[:, :length]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first `length` tokens to another row."""
        for keys, values in self._layers:
            keys[target, ..., :length] = keys[source, ..., :length]
            values[target, :, :length] = values[source, :, :length]


def size(tensors: KVTensors) -> int:
    """Size in bytes."""
    return sum(tensor.numel() * tensor.element_size() for pair in tensors for tensor in pair)


def causal_bias(starts: Tensor, tokens: int, columns: int, window: int | None = None) -> Any:
    """Additive causal mask: 0 for visible columns, else -inf.

    Args:
        starts: ``[rows]``, length of each row before the new tokens.
        tokens: new tokens per row.
        columns: columns of the cache to mask.
        window: sliding window in tokens, itself included; None: full attention.

    Returns:
        ``[rows, 1, tokens, columns]``, float32.
    """
    own = starts[:, None, None, None] + torch.arange(tokens, device=starts.device)[:, None]
    column = torch.arange(columns, device=starts.device)
    hidden = column > own
    if window is not None:
        hidden |= column <= own - window
    return torch.zeros(hidden.shape, device=starts.device).masked_fill_(hidden, float("-inf"))
