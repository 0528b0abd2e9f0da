"""Plays a script of calls against the cache, in a process of its own."""

import json
import subprocess
import sys

PLAY = """
import json, sys
from cache import Cache
size, calls = json.load(sys.stdin)
try:
    cache = Cache(size)
    other = Cache(size)
    answers = [getattr(cache, name)(*arguments) for name, *arguments in calls]
    assert type(cache.keys()) is list and other.keys() == []
    print(json.dumps([answers, cache.keys(), cache.hits, cache.misses]))
except ValueError:
    print(json.dumps("ValueError"))
"""


def play(size: int, *calls: list[object]) -> object:
    done = subprocess.run(
        [sys.executable, "-c", PLAY],
        input=json.dumps([size, calls]),
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return json.loads(done.stdout)


def put(key: object, value: object) -> list[object]:
    return ["put", key, value]


def test_the_oldest_is_forgotten() -> None:
    answers = play(2, put("a", 1), put("b", 2), put("c", 3), ["get", "a"], ["get", "c"])
    assert answers == [[None, None, None, None, 3], ["b", "c"], 1, 1]


def test_get_is_a_use() -> None:
    answers = play(2, put("a", 1), put("b", 2), ["get", "a"], put("c", 3))
    assert answers == [[None, None, 1, None], ["a", "c"], 1, 0]


def test_putting_again_is_a_use_and_forgets_nothing() -> None:
    answers = play(2, put("a", 1), put("b", 2), put("a", 5), ["keys"], put("c", 3), ["get", "a"])
    assert answers == [[None, None, None, ["b", "a"], None, 5], ["c", "a"], 1, 0]


def test_false_values_are_values() -> None:
    gets = [["get", key, 9] for key in "nzx"]
    answers = play(3, put("n", None), put("z", 0), *gets)
    assert answers == [[None, None, None, 0, 9], ["n", "z"], 2, 1]


def test_a_cache_of_one() -> None:
    assert play(1, put("a", 1), put("b", 2), ["get", "b"]) == [[None, None, 2], ["b"], 1, 0]


def test_a_size_below_one_is_refused() -> None:
    assert play(0) == "ValueError"
    assert play(-3) == "ValueError"
