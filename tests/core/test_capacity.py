"""How many groups a stream may start: staleness as arithmetic."""

import itertools
import random

import pytest
from attrs import evolve

from ale._run.capacity import Capacity


def areal(c: Capacity, version: int, accepted: int, running: int) -> int:
    """The formula as published (arXiv:2505.24298), for a run without an end."""
    ahead = (c.staleness + version + 1) * c.batch
    return min(c.max_running - running, ahead - accepted - running)


def test_without_an_end_in_sight_it_is_the_published_formula() -> None:
    for batch, eta, most in itertools.product((1, 2, 3), (0, 1, 4), (1, 3, 50)):
        capacity = Capacity(batch=batch, staleness=eta, steps=1000, max_running=most)
        for version, accepted, running in itertools.product(range(4), range(25), range(12)):
            found = capacity.free(version=version, accepted=accepted, running=running)
            assert found == max(0, areal(capacity, version, accepted, running))


def test_no_group_is_started_that_no_step_will_need() -> None:
    capacity = Capacity(batch=4, staleness=8, steps=3, max_running=100)
    assert capacity.free(version=0, accepted=0, running=0) == 12
    assert capacity.free(version=2, accepted=8, running=3) == 1
    assert capacity.free(version=2, accepted=8, running=4) == 0


def test_without_staleness_a_step_starts_when_the_one_before_is_learned() -> None:
    capacity = Capacity(batch=2, staleness=0, steps=5, max_running=8)
    assert [capacity.free(version=0, accepted=n, running=0) for n in range(3)] == [2, 1, 0]
    assert capacity.free(version=1, accepted=2, running=0) == 2


@pytest.mark.parametrize("changes", [{"batch": 0}, {"staleness": -1}, {"steps": 0}])
def test_a_limit_that_would_start_nothing_is_refused(changes: dict[str, int]) -> None:
    good = Capacity(batch=1, staleness=0, steps=1, max_running=1)
    with pytest.raises(ValueError, match=next(iter(changes))):
        evolve(good, **changes)


def test_any_order_of_events_keeps_the_limit_and_ends() -> None:
    for seed in range(300):
        _play(seed)


def _play(seed: int) -> None:
    """Groups end in any order, training takes any time, and some groups are dropped."""
    chance = random.Random(seed)
    capacity = Capacity(
        batch=chance.randint(1, 4),
        staleness=chance.randint(0, 3),
        steps=chance.randint(1, 6),
        max_running=chance.randint(1, 9),
    )
    version = started = dropped = 0
    running: list[int] = []
    waiting: list[int] = []
    learned: list[int] = []
    while version < capacity.steps:
        accepted = len(learned) + len(waiting)
        free = capacity.free(version=version, accepted=accepted, running=len(running))
        moves = ["start"] * bool(free) + ["end"] * bool(running)
        moves += ["learn"] * (len(waiting) >= capacity.batch)
        assert moves, f"neither a step nor a group could go on, with seed {seed}"
        match chance.choice(moves):
            case "start":
                # The group with this number can be learned in step (started - dropped) // batch.
                assert (started - dropped) // capacity.batch <= version + capacity.staleness
                running.append(started)
                started += 1
            case "end":
                ended = running.pop(chance.randrange(len(running)))
                if chance.random() < 0.1:
                    dropped += 1
                else:
                    waiting.append(ended)
            case "learn":
                learned += waiting[: capacity.batch]
                del waiting[: capacity.batch]
                version += 1
        assert len(running) <= capacity.max_running
        assert len(waiting) <= (capacity.staleness + 1) * capacity.batch
    assert len(set(learned)) == len(learned) == capacity.steps * capacity.batch
    assert not running
    assert not waiting
    assert started == len(learned) + dropped, "nothing was sampled in vain"
