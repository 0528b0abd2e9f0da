"""`ale loop` as a process that is killed, again and again, while episodes come."""

import random
import signal
import time
from functools import partial

import pytest

from ale.runs import RunReader
from ale.testing.waiting import wait_for

from .conftest import PATIENCE_S, Place


def killed_while_it_learns(place: Place, kills: int, seed: int) -> None:
    """Nothing is lost, and nothing learned from twice."""
    place.write({"gate": {"threshold": -9.0}, "poll_s": 0.01, "keep": 1})
    chance = random.Random(seed)
    given = []
    with place.recording() as giver:
        for _ in range(kills):
            more = len(place.decisions) + 1 if chance.random() < 0.5 else 0
            process = place.start("loop.yaml")
            given += [giver.give(chance.uniform(0.3, 0.8)) for _ in range(chance.randrange(6, 14))]
            wait_for(partial(has_decided, place, more))
            # In the middle of its work, wherever that is.
            time.sleep(0.3 * chance.random())
            process.kill()
            assert process.wait(PATIENCE_S) == -signal.SIGKILL
        while len(given) % 4:
            given.append(giver.give(0.6))
        steps = len(given) // 4
        process = place.start("loop.yaml")
        wait_for(lambda: len(place.decisions) == steps)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, (place.folder / "log").read_text()
    assert sorted({version for version, _ in place.verdicts}) == list(range(1, steps + 1))
    assert {what for _, what in place.verdicts} <= {"deployed", "refused"}
    index = RunReader(place.directory).index()
    assert index.stream is not None
    groups = [group for batch in index.stream.batches.values() for group in batch]
    assert len(groups) == len(set(groups)) == 2 * steps
    stored = [
        each.metadata["from"]["episode"]
        for each in RunReader(place.directory).episodes
        if each.split == "train"
    ]
    assert sorted(stored) == sorted(given)
    last = max(version for version, what in place.verdicts if what == "deployed")
    learned = place.state(last)["learned"]
    assert len(learned) == len(set(learned))
    refused = sum(what == "refused" for _, what in place.verdicts)
    assert len(learned) == 4 * (steps - refused)


def has_decided(place: Place, n: int) -> bool:
    return (place.directory / "events.jsonl").exists() and len(place.decisions) >= n


def test_a_killed_loop_loses_nothing_and_learns_nothing_twice(place: Place) -> None:
    killed_while_it_learns(place, kills=3, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_the_same_with_many_kills(place: Place, seed: int) -> None:
    killed_while_it_learns(place, kills=20, seed=seed)
