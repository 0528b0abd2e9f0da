"""How long the rest of a grid will take."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from ale.errors import InputError
from ale.runs import RunReader
from ale_ablate.grid import Slot
from ale_ablate.measuring import is_completed, seconds_of

_CLOSE = 3
"""Steps from which on a running run's own rate is taken."""


def seconds_left(missing: Sequence[Slot], known: Mapping[int, float], jobs: int) -> float | None:
    """Seconds until the last missing run is done, at most `jobs` at a time.

    Args:
        missing: runs that are to be done, from their beginning.
        known: mean seconds of a run, by the number of its cell.

    Returns:
        None where nothing is known. A cell without a run is taken for the mean of the others.
    """
    if not known:
        return None
    each = fmean(known.values())
    expected = [known.get(slot.number, each) for slot in missing]
    # No schedule is shorter than its longest run.
    return max(sum(expected) / jobs, max(expected, default=0.0))


def timings(slots: Iterable[Slot]) -> dict[int, float]:
    """Mean seconds of the completed runs, by the number of their cell."""
    found: dict[int, list[float]] = {}
    for slot in slots:
        seconds = completed_seconds(slot)
        if seconds is not None:
            found.setdefault(slot.number, []).append(seconds)
    return {number: fmean(each) for number, each in found.items()}


def completed_seconds(slot: Slot) -> float | None:
    """How long a completed run took; None where it is not completed, or that is unknown."""
    path = slot.run()
    if path is None or not is_completed(slot):
        return None
    return seconds_of(RunReader(path))


def whole_seconds(slot: Slot, spent: float, *, resumed: bool) -> float | None:
    """How long a run took that has just completed; None where that is unknown.

    Args:
        spent: seconds of its last process, which are all where it was not resumed.
    """
    return completed_seconds(slot) if resumed else spent


def by_first_steps(slot: Slot) -> tuple[float, int] | None:
    """Seconds that a running run will take in all, at the rate of its first steps, and how many.

    Steps with demonstrations are shorter than later ones, so this may be too little.
    """
    path = slot.run()
    if path is None:
        return None
    try:
        run = RunReader(path)
        events = list(run.events())
        total = int(run.manifest["config"]["run"]["steps"])
    except InputError:
        return None  # its next line may be half written
    spent, n, since = 0.0, 0, None
    for event in events:
        if event["event"] in ("run_started", "run_resumed"):
            since = event["at"]
        elif event["event"] == "step_finished" and since is not None:
            spent, n, since = spent + event["at"] - since, n + 1, event["at"]
    if n < min(_CLOSE, total):
        return None
    return spent / n * total, n
