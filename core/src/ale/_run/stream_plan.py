"""The groups that a stream draws, step by step: the tasks of a step, or what a scheme plans."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from attrs import define, field, frozen

from ale._config import RunOptions
from ale._run.parts import PreparedTask
from ale._run.plan import EpisodePlan, episode_plans, starts_of_step, tasks_per_step
from ale._store import RunDirectory
from ale._store.groups import GroupKey
from ale.errors import PluginError
from ale.protocols import Start, StartScheme


@frozen(kw_only=True)
class Drawn:
    """A group to sample."""

    number: int
    """Number of groups drawn before it."""
    key: GroupKey
    plans: Callable[[], Iterator[EpisodePlan]]


@define
class StreamPlan:
    """The starts of each step of drawing.

    What a scheme plans depends on the steps that it has learned from so far. So each plan is
    stored in ``groups.jsonl`` with the number of these steps, and a resumed run makes the scheme
    learn and plan in the same order.
    """

    tasks: Sequence[PreparedTask]
    options: RunOptions
    scheme: StartScheme | None
    store: RunDirectory
    _planned: list[Sequence[Start]] = field(factory=list)
    """Starts of the first steps, as planned by a scheme."""
    _learned: int = 0
    """Number of steps that the scheme has learned from."""

    def restore(self) -> None:
        """Plan again what the run had planned before it was resumed.

        Raises:
            PluginError: the scheme plans something else now.
        """
        for version, groups in self.store.groups.planned:
            self.learn(version)
            step = len(self._planned)
            starts = self._starts(step)
            if _keys(step, starts) != tuple(groups):
                raise PluginError(
                    f"the start scheme plans other starts for step {step} than before the run was "
                    "resumed: has its code, its stored run or the order of the tasks changed?"
                )
            self._planned.append(starts)

    def learn(self, version: int) -> None:
        """Make the scheme learn from those of the first `version` steps that are new to it."""
        if self.scheme is None:
            return
        for step in range(self._learned, version):
            self.scheme.learn(step, self.store.graded(step))
            self._learned = step + 1

    def upto(self, steps: int) -> None:
        """Plan those of the first `steps` steps that are not planned yet."""
        while self.scheme is not None and len(self._planned) < steps:
            step = len(self._planned)
            starts = self._starts(step)
            self.store.add_groups("planned", self._learned, _keys(step, starts))
            self._planned.append(starts)

    def starts(self, step: int) -> Sequence[Start]:
        """The groups of a step, which is planned now if it was not before."""
        self.upto(step + 1)
        return self._starts(step) if self.scheme is None else self._planned[step]

    def size(self, step: int) -> int:
        """Number of a step's groups."""
        if self.scheme is None:
            return tasks_per_step(self.tasks, self.options)
        return len(self.starts(step))

    def demonstrates(self, step: int) -> bool:
        """Are some of a step's starts demonstrations?"""
        return self.scheme is not None and any(each.demonstration for each in self.starts(step))

    def groups(self, last: int | None = None) -> Iterator[Drawn]:
        """Every group in the order in which the steps of a run without a stream would draw it.

        Args:
            last: the last step of drawing; None: there is no end.
        """
        number = itertools.count()
        for step in itertools.count() if last is None else range(last + 1):
            starts = self.starts(step)
            if not starts and step >= self.options.steps:
                raise PluginError(
                    f"the start scheme planned nothing for step {step}, whose groups are to "
                    "replace those that were dropped"
                )
            for start in starts:
                plans = partial(episode_plans, self.tasks, self.options, step, [start])
                (key,) = _keys(step, [start])
                yield Drawn(number=next(number), key=key, plans=plans)

    def _starts(self, step: int) -> Sequence[Start]:
        return starts_of_step(self.tasks, self.options, step, self.scheme)


def _keys(step: int, starts: Sequence[Start]) -> tuple[GroupKey, ...]:
    return tuple(GroupKey(step, start.task_id, start.name) for start in starts)
