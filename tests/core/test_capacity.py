"""How many groups a stream may start: staleness as arithmetic."""

import itertools
import random

import pytest
from attrs import evolve

from ale._run.schedule import Capacity


def free(c: Capacity, batch: int, *, version: int, accepted: int, running: int) -> int:
    """What is free where each step has `batch` groups, and so many were complete so far."""
    chosen = min(accepted // batch, version)
    wanted = (c.ahead(version) - chosen) * batch
    return c.free(wanted=wanted, waiting=accepted - chosen * batch, running=running)


def test_without_an_end_in_sight_it_is_the_published_formula() -> None:
    for batch, eta, most in itertools.product((1, 2, 3), (0, 1, 4), (1, 3, 50)):
        capacity = Capacity(staleness=eta, steps=1000, max_running=most)
        for version, accepted, running in itertools.product(range(4), range(25), range(12)):
            found = free(capacity, batch, version=version, accepted=accepted, running=running)
            # arXiv:2505.24298, in groups.
            ahead = (eta + version + 1) * batch
            assert found == max(0, min(most - running, ahead - accepted - running))


def test_no_group_is_started_that_no_step_will_need() -> None:
    capacity = Capacity(staleness=8, steps=3, max_running=100)
    assert free(capacity, 4, version=0, accepted=0, running=0) == 12
    assert free(capacity, 4, version=2, accepted=8, running=3) == 1
    assert free(capacity, 4, version=2, accepted=8, running=4) == 0


def test_without_staleness_a_step_starts_when_the_one_before_is_learned() -> None:
    capacity = Capacity(staleness=0, steps=5, max_running=8)
    assert [free(capacity, 2, version=0, accepted=n, running=0) for n in range(3)] == [2, 1, 0]
    assert free(capacity, 2, version=1, accepted=2, running=0) == 2


def test_a_useless_group_is_replaced_as_often_as_there_are_refills() -> None:
    capacity = Capacity(staleness=0, steps=1, max_running=8, refills=1)
    found = [capacity.free(wanted=2, waiting=0, running=0, useless=n) for n in range(5)]
    assert found == [2, 2, 2, 1, 0]
    assert capacity.free(wanted=2, waiting=1, running=0, useless=1) == 1


@pytest.mark.parametrize("changes", [{"refills": -1}, {"staleness": -1}, {"steps": 0}])
def test_a_limit_that_would_start_nothing_is_refused(changes: dict[str, int]) -> None:
    good = Capacity(staleness=0, steps=1, max_running=1)
    with pytest.raises(ValueError, match=next(iter(changes))):
        evolve(good, **changes)


def test_any_order_of_events_keeps_the_limit_and_ends() -> None:
    for seed in range(300):
        _play(seed)


def _play(seed: int) -> None:
    """Groups end in any order, training takes any time, and some groups are dropped."""
    chance = random.Random(seed)
    batch = chance.randint(1, 4)
    capacity = Capacity(
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
        n_free = free(capacity, batch, version=version, accepted=accepted, running=len(running))
        moves = ["start"] * bool(n_free) + ["end"] * bool(running)
        moves += ["learn"] * (len(waiting) >= batch)
        assert moves, f"neither a step nor a group could go on, with seed {seed}"
        match chance.choice(moves):
            case "start":
                # The group with this number can be learned in step (started - dropped) // batch.
                assert (started - dropped) // batch <= version + capacity.staleness
                running.append(started)
                started += 1
            case "end":
                ended = running.pop(chance.randrange(len(running)))
                if chance.random() < 0.1:
                    dropped += 1
                else:
                    waiting.append(ended)
            case "learn":
                learned += waiting[:batch]
                del waiting[:batch]
                version += 1
        assert len(running) <= capacity.max_running
        assert len(waiting) <= (capacity.staleness + 1) * batch
    assert len(set(learned)) == len(learned) == capacity.steps * batch
    assert not running
    assert not waiting
    assert started == len(learned) + dropped, "nothing was sampled in vain"
