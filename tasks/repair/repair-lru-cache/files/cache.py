"""A cache of limited size."""


class Cache:
    """Keeps the `size` entries used last. ValueError for a size below 1."""

    _entries = {}

    def __init__(self, size):
        self.size = size
        self.hits = 0
        self.misses = 0

    def get(self, key, default=None):
        """The value of `key`, now the one used last; `default` where there is none.

        A stored None is a value: it is a hit.
        """
        value = self._entries.get(key)
        if value:
            self.hits += 1
            return value
        self.misses += 1
        return default

    def put(self, key, value):
        """Store a value under `key`, now the one used last; forget the oldest if too many."""
        if len(self._entries) >= self.size:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = value

    def keys(self):
        """A list of the keys, the one used last at the end. Not a use."""
        return self._entries.keys()
