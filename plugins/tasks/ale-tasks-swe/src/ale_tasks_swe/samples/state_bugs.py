"""Samples that compute and keep state."""

from ale_tasks_swe.samples.bug import Bug

SHARES = Bug(
    name="shares",
    issue="""Cents get lost when a bill is split

`shares.split(100, [1, 1, 1])` gives `[33, 33, 33]`: one cent is missing. The shares have to
add up to the total. What is left over goes to the largest remainders, and to the earlier one of
equal ones.""",
    files={
        "shares.py": '''"""Splits amounts of cents."""


def split(total, weights):
    """Shares of a total in proportion to weights."""
    if not weights or min(weights) < 0 or sum(weights) == 0:
        raise ValueError("weights must be at least 0, and one of them above")
    return [total * weight // sum(weights) for weight in weights]


def percentages(amounts):
    """Whole percentages of the sum."""
    return split(100, amounts)
''',
    },
    tests={
        "test_shares.py": """import pytest

import shares


def test_even():
    assert shares.split(100, [1, 1]) == [50, 50]


def test_zero_weight():
    assert shares.split(90, [2, 0, 1]) == [60, 0, 30]


@pytest.mark.parametrize("weights", [[], [0], [1, -1]])
def test_bad_weights(weights):
    with pytest.raises(ValueError):
        shares.split(1, weights)
""",
    },
    fix={
        "shares.py": (
            (
                "    return [total * weight // sum(weights) for weight in weights]\n",
                "    whole = sum(weights)\n"
                "    made = [total * weight // whole for weight in weights]\n"
                "    remainders = [total * weight % whole for weight in weights]\n"
                "    first = sorted(range(len(weights)), key=lambda i: (-remainders[i], i))\n"
                "    for index in first[: total - sum(made)]:\n"
                "        made[index] += 1\n"
                "    return made\n",
            ),
        ),
    },
    fixed_tests={
        "test_shares.py": (
            (
                "def test_zero_weight():\n",
                "@pytest.mark.parametrize(\n"
                '    "total, weights, expected",\n'
                "    [(100, [1, 1, 1], [34, 33, 33]), (10, [1, 2, 3], [2, 3, 5])],\n"
                '    ids=["equal", "unequal"],\n'
                ")\n"
                "def test_nothing_is_lost(total, weights, expected):\n"
                "    assert shares.split(total, weights) == expected\n\n\n"
                "def test_percentages():\n"
                "    assert sum(shares.percentages([1, 1, 1, 1, 1, 1, 1])) == 100\n\n\n"
                "def test_zero_weight():\n",
            ),
        ),
    },
    fail_to_pass=(
        "test_shares.py::test_nothing_is_lost[equal]",
        "test_shares.py::test_nothing_is_lost[unequal]",
        "test_shares.py::test_percentages",
    ),
    pass_to_pass=(
        "test_shares.py::test_even",
        "test_shares.py::test_zero_weight",
        "test_shares.py::test_bad_weights",
    ),
)

EXPIRY = Bug(
    name="expiry",
    issue="""`len()` of a cache counts what has expired

After its time an entry can't be read any more, but `len(cache)` still counts it, `key in cache`
is still true, and it still takes the place of a living one when the cache is full.""",
    files={
        "expiry/__init__.py": (
            '"""A cache whose entries expire."""\n\nfrom expiry.cache import Cache\n\n'
            '__all__ = ["Cache"]\n'
        ),
        "expiry/cache.py": '''"""The cache."""

import time


class Cache:
    """Keeps at most `size` entries, each for `seconds`."""

    def __init__(self, size, seconds, clock=time.monotonic):
        self._size, self._seconds, self._clock = size, seconds, clock
        self._entries = {}

    def __setitem__(self, key, value):
        self._entries.pop(key, None)
        if len(self._entries) >= self._size:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (value, self._clock() + self._seconds)

    def __getitem__(self, key):
        value, end = self._entries[key]
        if self._clock() >= end:
            raise KeyError(key)
        return value

    def __contains__(self, key):
        return key in self._entries

    def __len__(self):
        return len(self._entries)
''',
    },
    tests={
        "tests/__init__.py": "",
        "tests/clock.py": (
            "class Clock:\n    def __init__(self):\n        self.now = 0\n\n"
            "    def __call__(self):\n        return self.now\n"
        ),
        "tests/test_cache.py": """import pytest

from expiry import Cache

from .clock import Clock


def test_an_entry_expires():
    clock = Clock()
    cache = Cache(2, 10, clock)
    cache["a"] = 1
    assert cache["a"] == 1
    clock.now = 10
    with pytest.raises(KeyError):
        cache["a"]


def test_the_oldest_entry_makes_room():
    cache = Cache(2, 10, Clock())
    for key in "abc":
        cache[key] = key
    assert "a" not in cache and "c" in cache and len(cache) == 2
""",
    },
    fix={
        "expiry/cache.py": (
            (
                "        self._entries.pop(key, None)\n",
                "        self._expire()\n        self._entries.pop(key, None)\n",
            ),
            (
                "        value, end = self._entries[key]\n"
                "        if self._clock() >= end:\n            raise KeyError(key)\n"
                "        return value\n",
                "        self._expire()\n        return self._entries[key][0]\n",
            ),
            (
                "        return key in self._entries\n",
                "        self._expire()\n        return key in self._entries\n",
            ),
            (
                "        return len(self._entries)\n",
                "        self._expire()\n        return len(self._entries)\n\n"
                "    def _expire(self):\n        now = self._clock()\n"
                "        for key in [k for k, (_, end) in self._entries.items() if now >= end]:\n"
                "            del self._entries[key]\n",
            ),
        ),
    },
    fixed_tests={
        "tests/test_cache.py": (
            (
                "def test_the_oldest_entry_makes_room():\n",
                "@pytest.fixture\ndef expired():\n    clock = Clock()\n"
                "    cache = Cache(2, 10, clock)\n"
                '    cache["a"] = cache["b"] = 1\n    clock.now = 5\n    cache["a"] = 2\n'
                "    clock.now = 12\n    return cache\n\n\n"
                "def test_what_has_expired_is_not_counted(expired):\n"
                "    assert len(expired) == 1\n\n\n"
                "def test_what_has_expired_is_not_in_it(expired):\n"
                '    assert "b" not in expired and "a" in expired\n\n\n'
                "def test_what_has_expired_takes_no_place(expired):\n"
                '    expired["c"] = 3\n    assert (expired["a"], expired["c"]) == (2, 3)\n\n\n'
                "def test_the_oldest_entry_makes_room():\n",
            ),
        ),
    },
    fail_to_pass=(
        "tests/test_cache.py::test_what_has_expired_is_not_counted",
        "tests/test_cache.py::test_what_has_expired_is_not_in_it",
    ),
    pass_to_pass=(
        "tests/test_cache.py::test_an_entry_expires",
        "tests/test_cache.py::test_the_oldest_entry_makes_room",
        "tests/test_cache.py::test_what_has_expired_takes_no_place",
    ),
)

ORDER = Bug(
    name="order",
    issue="""A step that needs itself is put into the order

`order.sort({"a": ["a"]})` gives `["a"]`, although nothing can come before itself: `CycleError` is
expected, with the cycle in its attribute `cycle`, from and to the same step. Longer cycles raise
`RecursionError` today; they have to raise `CycleError`, too.""",
    files={
        "order/__init__.py": (
            '"""Steps in the order in which they can be done."""\n\n'
            "from order.errors import CycleError\nfrom order.sorting import sort\n\n"
            '__all__ = ["CycleError", "sort"]\n'
        ),
        "order/errors.py": '''"""Errors."""


class CycleError(ValueError):
    """Steps need each other."""
''',
        "order/sorting.py": '''"""The order."""


def sort(needs):
    """All steps, each after those that it needs; otherwise in the order given."""
    done = []

    def visit(step):
        for needed in needs.get(step, ()):
            if needed not in done and needed != step:
                visit(needed)
        if step not in done:
            done.append(step)

    for step in needs:
        visit(step)
    return done
''',
    },
    tests={
        "tests/test_order.py": """from order import sort


class TestSort:
    def test_needed_steps_come_first(self):
        assert sort({"c": ["b"], "b": ["a"], "a": []}) == ["a", "b", "c"]

    def test_steps_that_only_others_name(self):
        assert sort({"b": ["a", "x"], "a": []}) == ["a", "x", "b"]

    def test_the_given_order_stays(self):
        assert sort({"b": [], "a": []}) == ["b", "a"]
""",
    },
    fix={
        "order/errors.py": (
            (
                '    """Steps need each other."""\n',
                '    """Steps need each other."""\n\n'
                "    def __init__(self, cycle):\n"
                '        super().__init__(" -> ".join(map(str, cycle)))\n'
                "        self.cycle = cycle\n",
            ),
        ),
        "order/sorting.py": (
            ('"""The order."""\n', '"""The order."""\n\nfrom order.errors import CycleError\n'),
            ("    done = []\n", "    done, path = [], []\n"),
            (
                "        for needed in needs.get(step, ()):\n"
                "            if needed not in done and needed != step:\n"
                "                visit(needed)\n",
                "        if step in path:\n"
                "            raise CycleError([*path[path.index(step) :], step])\n"
                "        path.append(step)\n"
                "        for needed in needs.get(step, ()):\n"
                "            if needed not in done:\n"
                "                visit(needed)\n"
                "        path.pop()\n",
            ),
        ),
    },
    fixed_tests={
        "tests/test_order.py": (
            ("from order import sort\n", "import pytest\n\nfrom order import CycleError, sort\n"),
            (
                "    def test_the_given_order_stays(self):\n",
                "    def test_a_step_that_needs_itself(self):\n"
                "        with pytest.raises(CycleError) as caught:\n"
                '            sort({"a": ["a"]})\n'
                '        assert caught.value.cycle == ["a", "a"]\n\n'
                "    def test_a_long_cycle(self):\n"
                "        with pytest.raises(CycleError) as caught:\n"
                '            sort({"x": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]})\n'
                '        assert caught.value.cycle == ["a", "b", "c", "a"]\n\n'
                "    def test_the_given_order_stays(self):\n",
            ),
        ),
    },
    fail_to_pass=(
        "tests/test_order.py::TestSort::test_a_step_that_needs_itself",
        "tests/test_order.py::TestSort::test_a_long_cycle",
    ),
    pass_to_pass=(
        "tests/test_order.py::TestSort::test_needed_steps_come_first",
        "tests/test_order.py::TestSort::test_steps_that_only_others_name",
        "tests/test_order.py::TestSort::test_the_given_order_stays",
    ),
)
