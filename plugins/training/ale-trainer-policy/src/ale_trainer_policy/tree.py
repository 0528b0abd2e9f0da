"""A forest of shared prefixes: rows of token ids, merged by equal prefixes, in depth-first order.

Repeated rollouts of a task, and rollouts that start inside an expert's episode, share prefixes. A
token of the forest stands for all rows with the same ids up to it, and is computed once. The rows

    [5, 6, 7]   [5, 6, 8, 9]   [4]

become a forest of six tokens and two roots:

    index      0   1   2   3   4   5
    ids        4   5   6   7   8   9
    parent    -1  -1   1   2   2   4      5 -> 6 -> 7
    position   0   0   1   2   2   3           `--> 8 -> 9
    last       0   5   5   3   5   5

Attention is causal along paths: token q attends to token k exactly where k <= q <= last[k], where
last[k] is the end of k's subtree. Token 5 (id 9) attends to tokens 1, 2, 4 and itself; not to 3, as
last[3] = 3 < 5, nor to 0.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from attrs import evolve, frozen

from ale_trainer_policy.options import Packing
from ale_trainer_policy.samples import Bools, Floats, Ints, Sample


@frozen(kw_only=True, eq=False)
class Tree:
    """N tokens of a forest in depth-first order: arrays of shape (N,). See the module's example."""

    ids: Ints
    parent: Ints
    """Index of the token before it; -1 for a root."""
    position: Ints
    """Number of tokens before it in its row."""

    @property
    def last(self) -> Ints:
        """Index of the last token in each token's subtree: (N,)."""
        # Children come after their parents: backwards, a subtree is complete before its parent.
        found = np.arange(len(self.ids))
        for index in range(len(self.ids) - 1, -1, -1):
            above = self.parent[index]
            if above >= 0:
                found[above] = max(found[above], found[index])
        return found

    def runs(self) -> Ints:
        """First token of each run, a longest stretch of the forest without a branch.

        In the module's example: 0 (id 4), 1 (ids 5, 6), 3 (id 7) and 4 (ids 8, 9).
        """
        index = np.arange(len(self.ids))
        heads = index[self.parent != index - 1]
        # A branch also ends its parent's run: the parent's first child starts a new one. A root's
        # parent is -1, which gives token 0.
        return np.unique(np.concatenate([index[:1], heads, self.parent[heads] + 1]))


@frozen(kw_only=True, eq=False)
class Datum:
    """The input of one forward and backward pass: a forest, and T target tokens.

    Trajectories that share a token of the forest are each trained on it, so targets are a list of
    their own: arrays of shape (T,), trajectory by trajectory.
    """

    tree: Tree
    token: Ints
    """Index into the forest of each target."""
    weight: Floats
    imitation: Floats
    behaviour_logp: Floats
    old_logp: Floats | None
    reference_logp: Floats | None
    sampled: Bools
    regularised: Floats
    positive: Bools
    chunk_id: Ints
    """Chunks of all trajectories numbered consecutively, in any order."""
    trajectory_id: Ints
    value_weight: Floats
    value_target: Floats
    old_value: Floats
    ends: Ints
    """Indices of the E targets whose own states are valued: the last ones of cut-off episodes."""
    samples: tuple[Sample, ...]
    """The samples it was packed from, in the order of the arrays."""

    @property
    def n_targets(self) -> int:
        """T."""
        return len(self.token)


def merge(rows: Sequence[Ints], *, shared: bool = True) -> tuple[Tree, list[Ints]]:
    """The forest of these rows, and each row's path: the index of each of its tokens.

    Args:
        shared: False merges nothing: every row is a tree of its own.
    """
    order = sorted(range(len(rows)), key=lambda i: _sort_key(rows[i]))
    ids: list[Ints] = []
    parents: list[Ints] = []
    positions: list[Ints] = []
    paths: list[Ints] = [np.zeros(0, np.int64)] * len(rows)
    size = 0  # size of the forest so far
    # Sorted rows: the longest shared prefix of a row is with the one before it.
    last = path = np.zeros(0, np.int64)
    for index in order:
        row = rows[index]
        common = common_prefix(last, row) if shared else 0
        fresh = np.arange(size, size + len(row) - common)
        parent = fresh - 1
        if len(fresh):
            parent[0] = path[common - 1] if common else -1
        ids.append(row[common:])
        parents.append(parent)
        positions.append(np.arange(common, len(row)))
        size += len(fresh)
        last, path = row, np.concatenate([path[:common], fresh])
        paths[index] = path
    tree = Tree(ids=_flat(ids), parent=_flat(parents), position=_flat(positions))
    return tree, paths


def _flat(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _sort_key(row: Ints) -> bytes:
    # Big-endian bytes sort as the ids do.
    return row.astype(">u4").tobytes()


def common_prefix(a: Ints, b: Ints) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def pack(samples: Sequence[Sample], *, shared: bool = True) -> Datum:
    """Pack samples into a datum. Trajectories stay whole, because their ratios need that.

    Args:
        shared: as for `merge`.
    """
    tree, paths = merge([row for sample in samples for row in sample.rows], shared=shared)
    tokens, chunks, trajectories = [], [], []
    first_row = first_chunk = 0
    for number, sample in enumerate(samples):
        offsets = np.cumsum([0, *(len(row) for row in sample.rows)])
        flat = _flat(paths[first_row : first_row + len(sample.rows)])
        tokens.append(flat[offsets[sample.row] + sample.at])
        chunks.append(sample.chunk + first_chunk)
        trajectories.append(np.full(len(sample.at), number, np.int64))
        first_row += len(sample.rows)
        first_chunk += int(sample.chunk.max()) + 1 if len(sample.chunk) else 0
    lengths = [len(sample.at) for sample in samples]
    starts = np.cumsum([0, *lengths])
    ends = [
        start + sample.units.end
        for start, sample in zip(starts, samples, strict=False)
        if sample.units is not None
    ]
    sampled = _column(samples, "sampled", np.bool_)
    return Datum(
        tree=tree,
        token=_flat(tokens),
        weight=_column(samples, "weight", np.float64),
        imitation=_column(samples, "imitation", np.float64),
        behaviour_logp=_column(samples, "behaviour_logp", np.float64),
        old_logp=_optional(samples, "old_logp"),
        reference_logp=_optional(samples, "reference_logp"),
        sampled=sampled,
        regularised=np.repeat([s.regularised for s in samples], lengths) * sampled,
        positive=np.repeat([s.positive for s in samples], lengths),
        chunk_id=_flat(chunks),
        trajectory_id=_flat(trajectories),
        value_weight=_values(samples, "weight"),
        value_target=_values(samples, "target"),
        old_value=_values(samples, "old"),
        ends=_flat(ends),
        samples=tuple(samples),
    )


def _column(samples: Sequence[Sample], name: str, dtype: type) -> Any:
    return np.concatenate([np.zeros(0, dtype), *(getattr(sample, name) for sample in samples)])


def _values(samples: Sequence[Sample], name: str) -> Floats:
    """A column of the value targets; 0 where a sample has none."""
    found = [
        np.zeros(len(each.at)) if each.value is None else getattr(each.value, name)
        for each in samples
    ]
    return np.concatenate([np.zeros(0), *found])


def _optional(samples: Sequence[Sample], name: str) -> Floats | None:
    missing = any(getattr(sample, name) is None for sample in samples)
    return None if missing else _column(samples, name, np.float64)


_SizeOf = Callable[[Sequence[Sample], Sample, int], int]
"""Size of a micro-batch with one more sample: from the micro-batch, the sample, the size so far."""


def split(
    samples: Sequence[Sample], max_tokens: int, *, packing: Packing = "tree", ranks: int = 1
) -> list[list[Sample]]:
    """Split the samples of one update into micro-batches of at most `max_tokens` computed tokens.

    Samples are sorted by their ids first, so that shared prefixes are adjacent. A trajectory is
    never split; one that is longer than the bound is a micro-batch of its own.

    Args:
        packing: how tokens are computed and counted: shared prefixes once, every row in full, or
            rows padded to the longest.
        ranks: how many ranks compute one micro-batch each at the same time, and wait for the
            longest. With several, the bound is the lowest that needs no more micro-batches than the
            next multiple of `ranks`, so that they have about equal size, the largest first. There
            may be fewer than that multiple, even with enough samples: of four equal samples, three
            ranks get two micro-batches, since a third would not shorten the longest.
    """
    ordered = sorted(samples, key=lambda s: ([_sort_key(row) for row in s.rows], s.episode))
    ways: Mapping[Packing, _SizeOf] = {
        "tree": _TreeSizes(),
        "packed": _packed_size,
        "padded": _padded_size,
    }
    size_of = ways[packing]
    pieces = _within(ordered, max_tokens, size_of)
    if ranks == 1 or not pieces:
        return pieces
    # Linear partitioning by bisection: the least bound that needs no more micro-batches.
    wanted = -(-len(pieces) // ranks) * ranks
    low, high = 1, max_tokens
    while low < high:
        middle = (low + high) // 2
        if len(_within(ordered, middle, size_of)) <= wanted:
            high = middle
        else:
            low = middle + 1
    return sorted(_within(ordered, low, size_of), key=lambda p: -_size(p, size_of))


def _within(ordered: Sequence[Sample], bound: int, size_of: _SizeOf) -> list[list[Sample]]:
    """Micro-batches within the bound, filled one after the other."""
    pieces: list[list[Sample]] = []
    size = 0
    for sample in ordered:
        last = pieces[-1] if pieces else []
        size = size_of(last, sample, size)
        if last and size <= bound:
            last.append(sample)
        else:
            pieces.append([sample])
            size = size_of([], sample, 0)
    return pieces


def _size(piece: Sequence[Sample], size_of: _SizeOf) -> int:
    size = 0
    for i, sample in enumerate(piece):
        size = size_of(piece[:i], sample, size)
    return size


class _TreeSizes:
    """Upper bound on a forest's tokens with one more sample, sharing prefixes with the last one."""

    def __init__(self) -> None:
        self._more: dict[tuple[int | None, int], int] = {}

    def __call__(self, piece: Sequence[Sample], sample: Sample, size: int) -> int:
        key = (id(piece[-1]) if piece else None, id(sample))
        if key not in self._more:
            before = list(piece[-1].rows[:1]) if piece else []
            self._more[key] = merged_size([*before, *sample.rows]) - merged_size(before)
        return size + self._more[key]


def _packed_size(_: Sequence[Sample], sample: Sample, size: int) -> int:
    return size + sum(len(row) for row in sample.rows)


def _padded_size(piece: Sequence[Sample], sample: Sample, _: int) -> int:
    lengths = [len(row) for each in (*piece, sample) for row in each.rows]
    return len(lengths) * max(lengths, default=0)


def merged_size(rows: Sequence[Ints]) -> int:
    """Number of tokens in the forest of these rows."""
    ordered = sorted(rows, key=_sort_key)
    shared = sum(common_prefix(a, b) for a, b in pairwise(ordered))
    return sum(len(row) for row in ordered) - shared


Splitter = Callable[[Sequence[Sample]], Sequence[Sequence[Sample]]]
"""Splits samples into micro-batches."""


def with_column(
    samples: Sequence[Sample],
    name: str,
    pieces: Sequence[Sequence[Sample]],
    values: Sequence[Floats],
) -> list[Sample]:
    """The samples, in the same order, with a field set in those of some micro-batches.

    Args:
        name: the field.
        pieces: micro-batches of these samples.
        values: the field's values for each micro-batch, in the order of its samples.
    """
    changed: dict[int, Sample] = {}
    for piece, found in zip(pieces, values, strict=True):
        for sample, own in zip(piece, by_sample(piece, found), strict=True):
            column: dict[str, Any] = {name: own}
            changed[id(sample)] = evolve(sample, **column)
    return [changed.get(id(each), each) for each in samples]


def by_sample(samples: Sequence[Sample], values: Floats) -> list[Floats]:
    """Values in the order of a datum's targets, split into each sample's own."""
    ends = np.cumsum([len(sample.at) for sample in samples])
    return np.split(values, ends[:-1])
