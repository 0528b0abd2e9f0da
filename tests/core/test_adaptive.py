"""`AdaptiveLimit` on simulated servers, and what `run.concurrency: auto` consists of beside it."""

import heapq
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import define, field

from ale._run.adaptive import START, AdaptiveLimit, Change, Signs, free_memory
from ale._run.control import Control, requested
from ale.errors import InputError

TURNS = 6


def queueing(n: int) -> Callable[[int], float]:
    """A server that works on `n` requests at once; the others wait."""
    return lambda running: max(1.0, running / n)


def preempting(n: int) -> Callable[[int], float]:
    """A server that does work twice if it has more requests than its memory holds."""
    return lambda running: max(1.0, (running / n) ** 1.5)


def thrashing(n: int) -> Callable[[int], float]:
    """A server whose throughput falls to a fraction of its best when its KV cache is full."""
    return lambda running: max(1.0, (running / n) ** 3)


def caching(tokens: int, of_turn: int = 500) -> Callable[[int], float]:
    """A server that batches all that its KV cache holds.

    What does not fit is swapped out, and computed again before each answer. Episodes are in all
    their turns, so that a request has the context of half of them on average.
    """
    fits = tokens / (of_turn * TURNS / 2)

    def seconds(running: int) -> float:
        batched = 1 + 0.01 * min(running, fits)
        return batched * (1 + 4 * max(0.0, running - fits) / fits)

    return seconds


@define
class World:
    """Episodes that run against one server, on a clock of its own."""

    limit: AdaptiveLimit | int
    turn_s: Callable[[int], float]
    turns: int = TURNS
    opening_s: float = 0.0
    quota: float | None = None
    """Requests per second; the others are refused, and come again later."""
    breaking: int | None = None
    """More episodes at once than this break."""
    step: int | None = None
    """Episodes of a training step: the next ones begin `learning_s` after its last has ended."""
    learning_s: float = 0.0
    changes: list[Change] = field(factory=list)
    refused: int = 0
    broken: int = 0
    memory: float = 1.0
    _now: float = 0.0
    _due: list[tuple[float, int, str, int, int]] = field(factory=list)
    _left: dict[int, int] = field(factory=dict)
    _started: int = 0
    _tokens: float = 0.0
    _filled: float = 0.0
    _rng: random.Random = field(factory=lambda: random.Random(0))

    @property
    def most(self) -> int:
        return self.limit if isinstance(self.limit, int) else self.limit.limit

    def seconds(self, episodes: int) -> float:
        """How long so many episodes take."""
        self._start(episodes)
        while self._left:
            self._now, _, what, episode, retry = heapq.heappop(self._due)
            if what == "ask":
                self._ask(episode, retry)
            else:
                self._end_turn(episode)
                self._start(episodes)
        return self._now

    def _push(self, at: float, what: str, episode: int, retry: int = 0) -> None:
        heapq.heappush(self._due, (at, self._rng.getrandbits(40), what, episode, retry))

    def _start(self, episodes: int) -> None:
        if self.step is not None:
            if not self._left and self._started:
                self._now += self.learning_s
            begun = self._started if self._left else self._started + 1
            episodes = min(episodes, -(-begun // self.step) * self.step if begun else self.step)
        while len(self._left) < self.most and self._started < episodes:
            self._started += 1
            self._left[self._started] = self.turns
            if not isinstance(self.limit, int):
                self.limit.begin([str(self._started)], self._now)
            self._push(
                self._now + self.opening_s * self._rng.uniform(0.8, 1.2), "ask", self._started
            )

    def _ask(self, episode: int, retry: int) -> None:
        if self.quota is not None and not self._admits(self.quota):
            self.refused += 1
            wait = min(0.5 * 2**retry, 30) * self._rng.uniform(0.5, 1)
            self.broken += retry == 5
            self._push(self._now + wait, "ask", episode, retry + 1)
            return
        if self.breaking is not None and len(self._left) > self.breaking:
            self.broken += 1
        took = self.turn_s(len(self._left)) * self._rng.lognormvariate(0, 0.3)
        self._push(self._now + took, "answer", episode)

    def _admits(self, quota: float) -> bool:
        self._tokens = min(quota / 2, self._tokens + (self._now - self._filled) * quota)
        self._filled = self._now
        admitted = self._tokens >= 1
        self._tokens -= admitted
        return admitted

    def _end_turn(self, episode: int) -> None:
        self._left[episode] -= 1
        ended = not self._left[episode]
        if not isinstance(self.limit, int):
            signs = Signs(self.refused, self.broken, self.memory)
            change = self.limit.finish(str(episode), self._now, signs, ended=ended)
            self.changes += [] if change is None else [change]
        if ended:
            del self._left[episode]
        else:
            self._push(self._now, "ask", episode)


def auto(most: int = 1024, limit: int = START) -> AdaptiveLimit:
    return AdaptiveLimit(most, limit)


@pytest.mark.parametrize("turn_s", [queueing(2), queueing(16), queueing(40), preempting(24)])
def test_nine_tenths_of_the_best_fixed_number(turn_s: Callable[[int], float]) -> None:
    fixed = [World(n, turn_s).seconds(1500) for n in (1, 2, 4, 8, 16, 32, 64, 128)]
    assert World(auto(), turn_s).seconds(1500) <= min(fixed) / 0.9


@pytest.mark.parametrize(
    ("turn_s", "fits"),
    [(thrashing(12), 12), (thrashing(24), 24), (caching(24_000), 16), (caching(90_000), 60)],
)
def test_it_comes_to_what_fits_a_kv_cache(turn_s: Callable[[int], float], fits: int) -> None:
    """With twice as many, such a server does less than with half as many."""
    world = World(auto(), turn_s)
    assert world.seconds(1500) <= World(fits, turn_s).seconds(1500) / 0.8
    assert 0.75 * fits <= world.changes[-1].proved <= 1.1 * fits
    assert max(each.limit for each in world.changes) <= 2 * fits


def test_between_a_number_and_its_double_the_middle_is_tried_at_once() -> None:
    """It would take a quarter more at a time, each after a longer wait."""
    world = World(auto(), thrashing(24))
    world.seconds(600)
    assert [each.limit for each in world.changes[:4]] == [16, 32, 24, 24]
    assert world.changes[3].proved == 24


def test_sandboxes_that_take_long_to_open_are_counted_in() -> None:
    """In a short measurement either all of the first episodes open sandboxes, or none."""
    world = World(auto(), queueing(16), opening_s=40.0)
    world.seconds(600)
    assert world.changes[-1].proved >= 64


@pytest.mark.parametrize("step", [40, 100])
def test_the_time_in_which_a_step_is_learned_is_not_measured(step: int) -> None:
    """Neither is a pause: what is done in no time of work says nothing about the number."""
    fixed = World(64, queueing(32), step=step, learning_s=600.0)
    idle = 600.0 * (-(-1500 // step) - 1)
    world = World(auto(), queueing(32), step=step, learning_s=600.0)
    assert world.seconds(1500) - idle <= (fixed.seconds(1500) - idle) / 0.8
    assert world.changes[-1].proved >= 24
    measured = [each.per_s for each in world.changes if each.per_s is not None]
    assert min(measured) > 5, [each.why for each in world.changes]


@pytest.mark.parametrize("quota", [10.0, 40.0])
def test_a_quota_is_used_and_no_episode_breaks(quota: float) -> None:
    worlds = [World(n, queueing(500), quota=quota) for n in (2, 4, 8, 16, 32, 64)]
    best = min(took for each in worlds if (took := each.seconds(600)) and not each.broken)
    world = World(auto(), queueing(500), quota=quota)
    assert world.seconds(600) <= best / 0.9
    assert world.broken == 0
    assert any("refused" in each.why for each in world.changes)


@pytest.mark.parametrize("at_once", [4, 16])
def test_the_ends_of_episodes_alone_are_enough(at_once: int) -> None:
    """More is not known of episodes in other processes."""
    world = World(auto(), queueing(at_once), turns=1)
    took = world.seconds(600)
    assert took <= World(at_once, queueing(at_once), turns=1).seconds(600) / 0.9
    assert len(world.changes) >= 3
    assert at_once / 1.6 < world.changes[-1].proved < at_once * 2.1


def test_too_many_for_a_quota_become_fewer_until_it_holds() -> None:
    world = World(auto(limit=64), queueing(500), quota=10.0)
    world.seconds(600)
    assert world.changes[-1].proved <= 14
    assert all("refused" in each.why for each in world.changes[:3])


def test_episodes_that_break_lower_the_number() -> None:
    world = World(auto(), queueing(500), breaking=20)
    world.seconds(1000)
    assert max(each.limit for each in world.changes) <= 40
    assert world.changes[-1].proved <= 20
    assert any("attempts at episodes broke" in each.why for each in world.changes)


def test_two_attempts_that_break_lower_nothing() -> None:
    limit = auto(limit=4)
    limit.begin("abcd", 0.0)
    assert limit.finish("a", 1.0, Signs()) is None
    assert limit.finish("b", 2.0, Signs(broken=2)) is None
    fallen = limit.finish("c", 3.0, Signs(broken=3))
    assert fallen is not None
    assert fallen.limit == 3


def test_slots_that_are_empty_say_nothing_about_more_of_them() -> None:
    limit = auto(limit=8)
    limit.begin("abcdefgh", 0.0)
    for at, name in enumerate("abcdefgh", 1):
        assert limit.finish(name, at, Signs()) is None
    for at, name in enumerate("abcdef", 9):
        assert limit.finish(name, at, Signs(), ended=True) is None
    assert [limit.finish("gh"[at % 2], at, Signs()) for at in range(20, 60)] == [None] * 40


def test_little_memory_lowers_the_number_and_some_keeps_it() -> None:
    short = World(auto(), queueing(500), memory=0.05)
    short.seconds(300)
    assert short.most == 1
    assert "only 5% of the memory is free" in short.changes[0].why
    scarce = World(auto(), queueing(500), memory=0.15)
    scarce.seconds(300)
    assert max([START, *(each.limit for each in scarce.changes)]) == START


def test_it_never_exceeds_what_is_possible() -> None:
    world = World(auto(most=20), queueing(500))
    world.seconds(600)
    assert world.most == max(each.limit for each in world.changes) == 20
    assert auto(most=3).limit == 3


def test_fewer_episodes_than_may_run_change_nothing() -> None:
    """It would measure how many there are."""
    world = World(auto(), queueing(500))
    world.seconds(START - 2)
    assert not world.changes


def test_what_is_tried_is_told_from_what_has_proved_itself() -> None:
    world = World(auto(), queueing(8))
    world.seconds(200)
    first, second = world.changes[:2]
    assert (first.limit, first.proved, first.why) == (16, 8, "are 16 better?")
    assert (second.limit, second.proved) == (12, 8), "between the two"
    assert "times the throughput of 8 with 16" in second.why


def test_a_run_can_be_told_to_adapt_while_episodes_run() -> None:
    control = Control(4)
    control.begin("a", 0.0)
    control.adapt(100, 5.0)
    assert control.state()["auto"] is True
    assert control.adaptive is not None
    assert control.adaptive.finish("a", 6.0, Signs(), ended=True) is None


@pytest.mark.parametrize("to", ['"fast"', "0", "null", '"8"', "2.5"])
def test_another_word_for_a_number_is_refused(to: str) -> None:
    with pytest.raises(InputError, match="a number of at least 1, or auto"):
        requested(b'{"action": "concurrency", "to": %s}' % to.encode())
    assert requested(b'{"action": "concurrency", "to": "auto"}') == ("concurrency", "auto")


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 1.0),
        ({"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 250 kB\n"}, 0.25),
        (
            {
                "proc/self/cgroup": "0::/a",
                "sys/fs/cgroup/a/memory.max": "1000\n",
                "sys/fs/cgroup/a/memory.current": "900\n",
                "sys/fs/cgroup/a/memory.stat": "inactive_file 400\n",
            },
            0.5,
        ),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/memory.max": "max\n"}, 1.0),
        (
            {
                "proc/self/cgroup": "4:memory:/a\n0::/\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1000\n",
                "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "950\n",
            },
            0.05,
        ),
    ],
)
def test_the_memory_that_is_free(tmp_path: Path, files: dict[str, str], free: float) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_memory(tmp_path) == pytest.approx(free)
