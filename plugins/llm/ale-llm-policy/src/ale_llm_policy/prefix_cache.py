"""The prefix cache: KV tensors of prompts and answers that may be continued, evicted by LRU.

A cached prefix serves every request that begins with the same ids: the next turn of the episode,
the other rollouts of a group, requests with the same system prompt.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from attrs import frozen

from ale_llm_policy.kv_cache import KVTensors, size

BLOCK = 16
"""Tokens; entries are found by the hash of their first n blocks."""


@frozen(eq=False)
class Entry:
    """A cached sequence."""

    ids: bytes
    """32 bits per token, for fast comparison."""
    tensors: KVTensors
    n_bytes: int
    keys: tuple[int, ...]


class PrefixCache:
    """Cached sequences, found by prefix.

    Args:
        max_bytes: limit on keys and values.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._by_key: dict[int, int] = {}
        self._next = 0
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, ids: Sequence[int]) -> tuple[Entry | None, int]:
        """The entry with the longest common prefix with `ids`, and its length in tokens.

        At most all but the last of `ids`, whose logits have to be computed.
        """
        packed = pack(ids)
        most = len(ids) - 1
        for key in reversed(list(block_keys(packed))):
            number = self._by_key.get(key)
            if number is not None:
                entry = self._entries[number]
                shared = common(packed, entry.ids, most)
                if shared >= BLOCK:  # else a hash collision
                    self._entries.move_to_end(number)
                    return entry, shared
        return None, 0

    def add(self, ids: Sequence[int], tensors: KVTensors) -> None:
        """Cache a sequence. Cached prefixes of it are dropped, as this one contains them."""
        packed = pack(ids)
        n_bytes = size(tensors)
        keys = tuple(block_keys(packed))
        if n_bytes > self._max_bytes or not keys:
            return
        for number in {self._by_key[key] for key in keys if key in self._by_key}:
            if packed.startswith(self._entries[number].ids):
                self._drop(number)
        self._next += 1
        self._entries[self._next] = Entry(packed, tensors, n_bytes, keys)
        self._by_key |= dict.fromkeys(keys, self._next)
        self.n_bytes += n_bytes
        while self.n_bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        """Remove all entries: the weights have changed."""
        self._entries.clear()
        self._by_key.clear()
        self.n_bytes = 0

    def _drop(self, number: int) -> None:
        entry = self._entries.pop(number)
        self.n_bytes -= entry.n_bytes
        for key in entry.keys:
            if self._by_key.get(key) == number:
                del self._by_key[key]


def pack(ids: Sequence[int]) -> bytes:
    """Ids as bytes, four each."""
    return array("I", ids).tobytes()


def block_keys(packed: bytes) -> Iterator[int]:
    """A hash of the first block, of the first two, and so on; whole blocks only."""
    key = 0
    width = 4 * BLOCK
    for start in range(0, len(packed) - width + 1, width):
        key = hash((key, packed[start : start + width]))
        yield key


def common(first: bytes, second: bytes, most: int) -> int:
    """Number of tokens in the common prefix of two packed sequences, at most `most`."""
    low, high = 0, min(len(first) // 4, len(second) // 4, most)
    while low < high:  # the longest equal beginning, by halves: comparing bytes is fast
        middle = (low + high + 1) // 2
        if first[4 * low : 4 * middle] == second[4 * low : 4 * middle]:
            low = middle
        else:
            high = middle - 1
    return low
