"""``run.concurrency: auto``: where throughput stops growing. docs/why/concurrency.md says why so.

The class neither waits nor looks at a clock: what happens comes with its time.
"""

from collections.abc import Iterable
from pathlib import Path

from attrs import define, field, frozen

START = 8
"""Episodes at once at first, as without ``auto``."""
_DOUBLES = 1.3
"""Throughput with twice as many, relative to before, with which the number is doubled again."""
_GROWS = 1.1
"""Throughput with which the doubled number at least stays."""
_MORE = 1.05
"""Throughput with a quarter more with which that number stays."""
_SAME = 0.97
"""Throughput with a fifth less with which that number is enough."""
_REFUSED = 0.25
"""Share of requests that a server may refuse: a quota that is used up refuses some."""
_ANSWERS = 24
"""Least answers that refusals are compared with: a few of them say nothing at first."""
_TRIAL = 8
"""Pieces of work per slot in the measurements of small trials; two where it may still double."""
_BROKEN = 3
"""Attempts that may break in a measurement: one or two do with any number."""
_LESS = 0.75
"""Share of the number that is left after a sign of overload."""
_SCARCE, _SHORT = 0.2, 0.1
"""Share of free memory with which the number no longer grows, and with which it falls."""
_FEWEST = 8
"""Pieces of work in the shortest measurement."""
_SELDOM = 16
"""Most measurements from one trial to the next."""
_PRESENT = 0.9
"""Share of the slots that must have finished something, before and in a measurement."""
_TURNS_OVER = 2
"""How often each slot gets a new episode in a measurement that may not be short."""
_OCCUPIED = 0.8
"""Share of the slots that must have been taken, on average: one that ends may be followed late."""
_UNEVEN = 3.0
"""How much longer than a turn an episode may take to begin, or to end, in short measurements."""


@frozen(kw_only=True)
class Change:
    """Another number of episodes at once, or another that has proved itself."""

    limit: int
    proved: int
    """The number that has proved itself so far; another limit is a trial."""
    why: str
    per_s: float | None = None
    """Pieces of work per second that were measured just before."""


@frozen
class Signs:
    """Signs of overload, counted since the run's process began."""

    refused: int = 0
    """Requests that a model's server refused for now."""
    broken: int = 0
    """Attempts at an episode that broke."""
    memory: float = 1.0
    """Share of memory that is free."""


@define
class _Running:
    """An episode that runs."""

    last: float
    """When it began, or last finished something."""
    turns: int = 0


@define
class _Shape:
    """How long pieces of work take: means that follow what changes."""

    beginning: float = 0.0
    turn: float = 0.0
    ending: float = 0.0

    def add(self, episode: _Running, at: float, *, ended: bool) -> None:
        """Count a piece of work, from the previous one of its episode."""
        which = "ending" if ended else "turn" if episode.turns else "beginning"
        before, spent = getattr(self, which), at - episode.last
        setattr(self, which, spent if before == 0 else before + (spent - before) / 8)
        episode.last = at
        episode.turns += 1

    @property
    def uneven(self) -> bool:
        """Is a short measurement one of those that begin or end, rather than of all?"""
        return max(self.beginning, self.ending) > _UNEVEN * self.turn


@define
class _Window:
    """A measurement. It begins when what was running at first has finished something."""

    signs: Signs
    lacking: set[str]
    """Episodes of the beginning that have finished nothing."""
    size: int
    """Number of episodes at the beginning."""
    last: float
    """When something happened last."""
    since: float | None = None
    work: int = 0
    begun: int = 0
    """Episodes that have finished their first piece of work."""
    occupied: float = 0.0
    """Seconds of slots that were taken."""

    def pass_to(self, at: float, running: int) -> None:
        """Let time pass in which so many ran; that in which none did is left out."""
        if running == 0 and self.since is not None:
            self.since += at - self.last  # a step is learned, or the run is paused
        self.occupied += running * (at - self.last)
        self.last = at

    @property
    def is_settled(self) -> bool:
        """Does each of almost all slots do what it does with this number of episodes?"""
        return len(self.lacking) <= self.size * (1 - _PRESENT)


@define
class AdaptiveLimit:
    """The number of episodes at once: doubled while that helps, then adjusted in small trials.

    A measurement counts finished pieces of work (turns, and episodes) per second, and only while
    as many episodes run as may: otherwise it would measure how many there are. A smaller number
    ends no episode.

    Args:
        most: never more than this.
        limit: the number to begin with.
    """

    most: int
    limit: int
    _running: dict[str, _Running] = field(factory=dict, init=False)
    _shape: _Shape = field(factory=_Shape, init=False)
    _proved: int = field(default=0, init=False)
    """0 before the first measurement."""
    _per_s: float = field(default=0.0, init=False)
    """Throughput with the proved number; 0 if it is not known."""
    _doubles: bool = field(default=True, init=False)
    """Each number so far was much better than half of it."""
    _until: int = field(default=1, init=False)
    """Measurements until the next trial."""
    _pause: int = field(default=1, init=False)
    """Measurements from one trial to the next."""
    _upwards: bool = field(default=True, init=False)
    """The direction of the next trial."""
    _window: _Window | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.limit = max(1, min(self.limit, self.most))

    @property
    def proved(self) -> int:
        """The number that has proved itself so far; 0 before the first measurement."""
        return self._proved

    def begin(self, episodes: Iterable[str], at: float) -> None:
        """Count episodes that begin."""
        if self._window is not None:
            self._window.pass_to(at, len(self._running))
        self._running.update({each: _Running(at) for each in episodes})

    def finish(
        self, episode: str, at: float, signs: Signs, *, ended: bool = False
    ) -> Change | None:
        """Count a finished piece of work; the change that follows from it.

        Args:
            episode: the one that has begun and finished a turn, or is at its end.
            at: now, in seconds.
            signs: so far.
            ended: nothing more comes from this episode.
        """
        change = self._finished(episode, at, signs, ended)
        if ended:
            del self._running[episode]
        return change

    def _finished(self, episode: str, at: float, signs: Signs, ended: bool) -> Change | None:
        first = not self._running[episode].turns
        self._shape.add(self._running[episode], at, ended=ended)
        running = len(self._running)
        if running > self.limit:
            self._window = None  # the last change has yet to take effect
            return None
        if self._window is None:
            if running < self.limit * _PRESENT:
                return None
            self._window = _Window(signs, {*self._running}, running, last=at)
        window = self._window
        window.pass_to(at, running)
        if (overload := self._overload(window, signs)) is not None:
            return self._fall(overload)
        window.lacking.discard(episode)
        if window.since is not None:
            window.work += 1
            window.begun += first
        elif window.is_settled:
            # Of an episode that has ended nothing more will come.
            lacking = {*self._running} - ({episode} if ended else set())
            self._window = _Window(signs, lacking, running, since=at, last=at)
        return self._measured(window, at, signs)

    def _overload(self, window: _Window, signs: Signs) -> str | None:
        """The sign of overload, in words; None without one."""
        if signs.memory < _SHORT:
            return f"only {signs.memory:.0%} of the memory is free"
        broken = signs.broken - window.signs.broken
        if broken >= _BROKEN and broken > self.limit / 8:
            return f"{broken} attempts at episodes broke"
        refused = signs.refused - window.signs.refused
        share = refused / (refused + max(window.work, 2 * self.limit, _ANSWERS))
        if share > _REFUSED:
            return f"the model's server refused {refused} requests"
        return None

    def _fall(self, why: str) -> Change | None:
        fewer = self._proved if self.limit > self._proved > 0 else max(1, int(self.limit * _LESS))
        self._window, self._doubles, self._proved, self._per_s = None, False, fewer, 0.0
        self._wait()
        return None if fewer == self.limit else self._to(fewer, why)

    def _measured(self, window: _Window, at: float, signs: Signs) -> Change | None:
        """The change that follows from a measurement that is complete."""
        enough = max(_FEWEST, self.limit * (2 if self._doubles else _TRIAL))
        turned_over = window.begun >= window.size * _TURNS_OVER or not self._shape.uneven
        if window.since is None or window.work < enough or not (window.is_settled and turned_over):
            return None
        if at <= window.since:
            return None
        self._window, per_s = None, window.work / (at - window.since)
        if window.occupied < _OCCUPIED * self.limit * (at - window.since):
            return None  # it says how many there were
        if self.limit != self._proved != 0:
            return self._tried(per_s, signs)
        self._proved = self.limit
        self._per_s = (self._per_s + per_s) / 2 if self._per_s else per_s
        self._until -= 1
        return self._try(signs) if self._until <= 0 else None

    def _tried(self, per_s: float, signs: Signs) -> Change:
        """The end of a trial: which number stays, and what is tried next."""
        before, tried, gain = self._proved, self.limit, per_s / self._per_s
        doubled, self._doubles = self._doubles, self._doubles and gain >= _DOUBLES
        needed = _GROWS if doubled else _MORE if tried > before else _SAME
        why = f"{gain:.2f} times the throughput of {before} with {tried}"
        if gain < needed:
            self._upwards = tried < before
            middle = (before + tried) // 2
            if doubled and middle > before:
                # A server that holds a few more may do much less with twice as many.
                return self._to(middle, why, per_s)
            self._wait()
            return self._to(before, why, per_s)
        self._proved, self._per_s, self._pause, self._until = tried, per_s, 1, 1
        further = self._try(signs) if self._doubles else None
        return self._to(tried if further is None else further.limit, why, per_s)

    def _wait(self) -> None:
        """Make the next trial later than the last one."""
        self._until = self._pause = min(_SELDOM, self._pause * 2)

    def _try(self, signs: Signs) -> Change | None:
        """Another number, if there is one to try."""
        now = self._proved
        more = min(self.most, 2 * now if self._doubles else max(now + 1, now * 5 // 4))
        if more == now or signs.memory < _SCARCE:
            self._doubles = self._upwards = False
        upwards = self._doubles or self._upwards
        fewer = min(now - 1, round(now * 0.8))
        if not upwards and fewer < 1:
            self._upwards = True
            self._wait()
            return None
        if upwards:
            return self._to(more, f"are {more} better?")
        return self._to(fewer, f"are {fewer} as good?")

    def _to(self, limit: int, why: str, per_s: float | None = None) -> Change:
        self.limit = limit
        return Change(limit=limit, proved=self._proved, why=why, per_s=per_s or self._per_s or None)


def free_memory(system: Path = Path("/")) -> float:
    """The share of memory that is free: of this machine, or of the control group's limit if less.

    1 where the system does not say.

    Args:
        system: where ``proc`` and ``sys`` are.
    """
    return min(_free_of_machine(system), *_free_of_groups(system))


def _free_of_machine(system: Path) -> float:
    found = _numbers(system / "proc/meminfo", ":")
    total = found.get("MemTotal")
    return found["MemAvailable"] / total if total and "MemAvailable" in found else 1.0


def _free_of_groups(system: Path) -> Iterable[float]:
    """Shares of the process's own group, as a container sees it, and of its path outside of one."""
    yield 1.0
    try:
        groups = [line.split(":", 2) for line in (system / "proc/self/cgroup").read_text().split()]
    except OSError:
        return
    for _, kinds, path in (each for each in groups if len(each) == 3):
        root = system / "sys/fs/cgroup"
        if "memory" in kinds.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            root /= "memory"
        elif not kinds:
            names = ("memory.max", "memory.current", "inactive_file")
        else:
            continue
        for folder in {root, root / path.lstrip("/")}:
            yield _free_of_group(folder, *names)


def _free_of_group(folder: Path, limit: str, used: str, cached: str) -> float:
    try:
        most, now = int((folder / limit).read_text()), int((folder / used).read_text())
    except (OSError, ValueError):  # no such group, or without a limit
        return 1.0
    now -= _numbers(folder / "memory.stat", " ").get(cached, 0)  # given back when it is needed
    return max(0.0, 1 - now / most) if most else 1.0


def _numbers(path: Path, separator: str) -> dict[str, int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    found = (line.partition(separator) for line in lines)
    return {name: int(rest.split()[0]) for name, _, rest in found if rest.split()[:1]}
