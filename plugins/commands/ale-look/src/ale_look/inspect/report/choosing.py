"""Which episodes a report includes if it can't include all."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ale_look.inspect.kinds import Kind
from ale_look.inspect.report.gathering import Head

T = TypeVar("T")

_TASKS = 30
"""Number of tasks whose last success and failure come first."""


def order(heads: Sequence[Head]) -> Iterator[Head]:
    """All episodes, most informative first, so that any prefix is a fair sample.

    First the last success and the last failure of each task; then, round by round, one episode of
    every step: best, worst, broken, and so on in turn. Any prefix of the steps is evenly spread.
    """
    chosen: set[int] = set()
    for head in (*_ends(heads), *_rounds(heads)):
        if head.offset not in chosen:
            chosen.add(head.offset)
            yield head


def _ends(heads: Sequence[Head]) -> Iterator[Head]:
    best: dict[tuple[Kind, str], Head] = {}
    worst: dict[tuple[Kind, str], Head] = {}
    for head in heads:
        key, reward = (head.kind, head.task_id), head.reward
        if reward is None:
            continue
        if key not in best or reward >= (best[key].reward or 0.0):
            best[key] = head
        if key not in worst or reward <= (worst[key].reward or 0.0):
            worst[key] = head
    for key in spread(sorted(best))[:_TASKS]:
        yield best[key]
        yield worst[key]


def _rounds(heads: Iterable[Head]) -> Iterator[Head]:
    steps: dict[tuple[Kind, int], list[Head]] = {}
    for head in heads:
        steps.setdefault((head.kind, head.step), []).append(head)
    queues = [_in_turn(steps[key]) for key in spread(sorted(steps))]
    while queues:
        taken = [(queue, next(queue, None)) for queue in queues]
        yield from (head for _, head in taken if head is not None)
        queues = [queue for queue, head in taken if head is not None]


def _in_turn(heads: Sequence[Head]) -> Iterator[Head]:
    """Best, worst, broken, second best, ..."""
    graded = deque(sorted((h for h in heads if h.reward is not None), key=_by_reward))
    broken = deque(h for h in heads if h.reward is None)
    while graded or broken:
        if graded:
            yield graded.popleft()
        if graded:
            yield graded.pop()
        if broken:
            yield broken.popleft()


def _by_reward(head: Head) -> float:
    return -(head.reward or 0.0)


def spread(values: Sequence[T]) -> list[T]:
    """The values reordered so that any prefix is evenly spread: both ends, then bisecting."""
    if len(values) < 3:
        return list(values)
    made, gaps = [0, len(values) - 1], deque([(0, len(values) - 1)])
    while gaps:
        low, high = gaps.popleft()
        middle = (low + high) // 2
        if low < middle < high:
            made.append(middle)
            gaps += [(low, middle), (middle, high)]
    return [values[i] for i in made]
