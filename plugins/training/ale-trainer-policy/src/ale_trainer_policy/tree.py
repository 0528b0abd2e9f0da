"""A forest of shared prefixes: rows of token ids merged exactly by their ids, in depth-first order.

Turns of an episode, repeats of a task and rollouts that restart from a chunk boundary share
prefixes. Each token of the forest is one (ids before it, id); it is computed once.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from attrs import evolve, frozen

from ale_trainer_policy.options import Packing
from ale_trainer_policy.samples import Bools, Floats, Ints, Sample


@frozen(kw_only=True, eq=False)
class Tree:
    """Tokens of a forest, parents before children, each subtree in one piece. Arrays of (N,)."""

    ids: Ints
    parent: Ints
    """Index of the token before it; -1 for the first of a row."""
    position: Ints
    """Tokens before it on its path."""

    @property
    def last(self) -> Ints:
        """Index of the last token of each token's subtree: (N,).

        Token k is seen from token q exactly where k <= q <= last[k]: with depth-first numbers a
        token's own index is the time of entry, and this the time of exit.
        """
        found = np.arange(len(self.ids))
        for index in range(len(self.ids) - 1, -1, -1):
            above = self.parent[index]
            if above >= 0:
                found[above] = max(found[above], found[index])
        return found

    def runs(self) -> Ints:
        """First token of each run: the longest pieces that no branch divides. Starts with 0."""
        index = np.arange(len(self.ids))
        heads = index[self.parent != index - 1]
        # What follows a fork is a run of its own, too; for a root that is token 0.
        return np.unique(np.concatenate([index[:1], heads, self.parent[heads] + 1]))


@frozen(kw_only=True, eq=False)
class Datum:
    """What one forward and backward pass is about: a forest, and its T tokens to be trained on.

    A token of the forest may be trained on for several trajectories that share it, so that the
    tokens to be trained on are a list of their own: arrays of shape (T,), trajectory by trajectory.
    """

    tree: Tree
    token: Ints
    """Index into the forest of each token to be trained on."""
    weight: Floats
    imitation: Floats
    behaviour_logp: Floats
    old_logp: Floats | None
    sampled: Bools
    positive: Bools
    chunk_id: Ints
    """Chunks of all trajectories numbered through; their order is nobody's business."""
    trajectory_id: Ints
    samples: tuple[Sample, ...]
    """Where it comes from, in the order of the arrays."""

    @property
    def n_targets(self) -> int:
        """T."""
        return len(self.token)


def merge(rows: Sequence[Ints], *, shared: bool = True) -> tuple[Tree, list[Ints]]:
    """The forest of these rows, and for each row the tokens of the forest that it runs through.

    Args:
        shared: False puts the rows side by side, each with a trunk of its own.
    """
    order = sorted(range(len(rows)), key=lambda i: _sort_key(rows[i]))
    ids: list[Ints] = []
    parents: list[Ints] = []
    positions: list[Ints] = []
    paths: list[Ints] = [np.zeros(0, np.int64)] * len(rows)
    size = 0
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
    # Big-endian bytes compare as the ids do, so that neighbours share their longest prefixes.
    return row.astype(">u4").tobytes()


def common_prefix(a: Ints, b: Ints) -> int:
    """Length of the longest common prefix."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n


def pack(samples: Sequence[Sample], *, shared: bool = True) -> Datum:
    """The datum of these samples. Every trajectory is whole in it, so that ratios are exact.

    Args:
        shared: as of `merge`.
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
    old = [sample.old_logp for sample in samples]
    return Datum(
        tree=tree,
        token=_flat(tokens),
        weight=_column(samples, "weight", np.float64),
        imitation=_column(samples, "imitation", np.float64),
        behaviour_logp=_column(samples, "behaviour_logp", np.float64),
        old_logp=None if any(o is None for o in old) else _column(samples, "old_logp", np.float64),
        sampled=_column(samples, "sampled", np.bool_),
        positive=np.repeat([s.positive for s in samples], [len(s.at) for s in samples]),
        chunk_id=_flat(chunks),
        trajectory_id=_flat(trajectories),
        samples=tuple(samples),
    )


def _column(samples: Sequence[Sample], name: str, dtype: type) -> Any:
    return np.concatenate([np.zeros(0, dtype), *(getattr(sample, name) for sample in samples)])


def split(
    samples: Sequence[Sample], max_tokens: int, *, packing: Packing = "tree"
) -> list[list[Sample]]:
    """Cut the samples of one update into micro-batches of at most `max_tokens` computed tokens.

    Neighbours in the order of their ids go together, whatever order they came in. A trajectory is
    never cut; one that is longer than the bound goes alone.

    Args:
        packing: how they will be computed, and so counted: a shared prefix once, every row in full,
            or padded to the longest.
    """
    size_of = {"tree": _added, "packed": _beside, "padded": _padded}[packing]
    ordered = sorted(samples, key=lambda s: ([_sort_key(row) for row in s.rows], s.episode))
    pieces: list[list[Sample]] = []
    size = 0
    for sample in ordered:
        last = pieces[-1] if pieces else []
        size = size_of(last, sample, size)
        if last and size <= max_tokens:
            last.append(sample)
        else:
            pieces.append([sample])
            size = size_of([], sample, 0)
    return pieces


def _added(piece: Sequence[Sample], sample: Sample, size: int) -> int:
    """Tokens of a forest with a sample more, at most: shared with the sample before it, once."""
    before = list(piece[-1].rows[:1]) if piece else []
    return size + merged_size([*before, *sample.rows]) - merged_size(before)


def _beside(_: Sequence[Sample], sample: Sample, size: int) -> int:
    return size + sum(len(row) for row in sample.rows)


def _padded(piece: Sequence[Sample], sample: Sample, _: int) -> int:
    lengths = [len(row) for each in (*piece, sample) for row in each.rows]
    return len(lengths) * max(lengths, default=0)


def merged_size(rows: Sequence[Ints]) -> int:
    """Tokens of the forest of these rows."""
    ordered = sorted(rows, key=_sort_key)
    shared = sum(common_prefix(a, b) for a, b in pairwise(ordered))
    return sum(len(row) for row in ordered) - shared


def with_old_logp(samples: Sequence[Sample], logp: Floats) -> list[Sample]:
    """Cut log-probabilities in the order of a datum's tokens into those of its samples."""
    ends = np.cumsum([len(sample.at) for sample in samples])
    return [
        evolve(sample, old_logp=part)
        for sample, part in zip(samples, np.split(logp, ends[:-1]), strict=True)
    ]
