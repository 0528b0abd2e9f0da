"""Rollouts after every prefix of stored episodes: their success rates are values of states."""

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from attrs import frozen

from ale.protocols import Start
from ale.runs import SUCCESS, RunReader
from ale.types import Episode, Task
from ale.values import EpisodeValues
from ale_figures.forks import Place
from ale_starts.demonstrations import EpisodeDemonstration, demonstration_of
from ale_starts.experts import Check, Exchange
from ale_starts.options import PrefixOptions

END = "end"
"""The beginning of the name of a state after an episode's last turn."""


@frozen(kw_only=True)
class Prefixed:
    """A stored episode, and the starts that reach each of its states."""

    episode: Episode
    demonstration: EpisodeDemonstration
    states: tuple[str, ...]
    """Name of each state, before the first turn to after the last."""


class Prefixes:
    """Several rollouts after each prefix of chosen episodes of a stored run, all in one step.

    States that several episodes of a task share, as they began with the same answers and
    observations, are started from once. After an episode's last turn nothing is left to sample: one
    rollout replays it whole, and has to be graded as it was.
    """

    def __init__(self, options: PrefixOptions) -> None:
        self._options = options
        self._chosen: list[Prefixed] | None = None

    @property
    def chosen(self) -> list[Prefixed]:
        """The chosen episodes, with their states."""
        if self._chosen is None:
            run = RunReader(self._options.run)
            self._chosen = prefixed(chosen(run, self._options), self._options.check)
        return self._chosen

    def plan(self, step: int, tasks: Sequence[Task], rollouts: int) -> Sequence[Start]:
        """The starts of those of these tasks that have chosen episodes."""
        known = {task.id for task in tasks}
        starts: dict[tuple[str, str], Start] = {}
        for each in self.chosen:
            if each.episode.task_id in known:
                for start in _starts(each, rollouts):
                    starts.setdefault((start.task_id, start.name), start)
        return list(starts.values())

    def learn(self, step: int, episodes: Iterable[Episode]) -> None:
        """Do nothing."""


def chosen(run: RunReader, options: PrefixOptions) -> list[Episode]:
    """Episodes of the policy alone, graded and with a turn: of each task successes and failures in
    turn, of tasks in an order that depends on the run's seed alone. The order in which episodes
    came to their ends makes no difference.
    """
    of_task: dict[str, dict[bool, list[Episode]]] = defaultdict(lambda: {True: [], False: []})
    for episode in run.episodes:
        own = episode.split == "train" and not episode.start and episode.reward is not None
        of_step = options.step is None or episode.step == options.step
        if own and of_step and episode.trajectory.turns:
            kept = of_task[episode.task_id][episode.reward == SUCCESS]
            kept.append(episode)
            kept.sort(key=lambda each: (each.step, each.rollout))
            del kept[options.per_task :]
    order = sorted(of_task)
    random.Random(f"prefixes\x1f{run.manifest.get('seed', 0)}").shuffle(order)  # noqa: S311
    found: list[Episode] = []
    for task_id in order:
        won, lost = of_task[task_id][True], of_task[task_id][False]
        mixed = [each for pair in _alternating(won, lost) for each in pair]
        found += mixed[: options.per_task]
        if len(found) >= options.episodes:
            break
    return found[: options.episodes]


def _alternating(one: Sequence[Episode], other: Sequence[Episode]) -> Iterator[list[Episode]]:
    for number in range(max(len(one), len(other))):
        yield [each[number] for each in (one, other) if number < len(each)]


def prefixed(episodes: Iterable[Episode], check: Check) -> list[Prefixed]:
    """The episodes with the names of their states.

    A state is named by the first episode that reaches it, as a `Place` in that one; so is the start
    from which rollouts reach it.
    """
    names: dict[tuple[str, bytes], str] = {}
    found = []
    for episode in episodes:
        whole = demonstration_of(episode, check, tagged=True)
        states = []
        for p, key in enumerate(_prefix_keys(whole.exchanges)):
            place = Place(p, whole.turns, _tag(whole.exchanges))
            last = p == whole.turns
            name = f"{END}.{place.name}" if last else place.name
            states.append(names.setdefault((episode.task_id, bytes([last]) + key), name))
        found.append(Prefixed(episode=episode, demonstration=whole, states=tuple(states)))
    return found


def _prefix_keys(exchanges: Sequence[Exchange]) -> Iterator[bytes]:
    """A digest of the answers and observations before each turn, and after the last."""
    known = hashlib.blake2b(digest_size=16)
    yield known.digest()
    for each in exchanges:
        calls = [(call.name, call.arguments) for call in each.answer.tool_calls]
        state = (each.answer.content, calls, each.observed, each.finish_reason)
        known.update(repr(state).encode())
        yield known.digest()


def _tag(exchanges: Sequence[Exchange]) -> str:
    """Six digits for answers and observations: other observations make another state."""
    *_, whole = _prefix_keys(exchanges)
    return whole.hex()[:6]


def _starts(each: Prefixed, rollouts: int) -> Iterator[Start]:
    whole = each.demonstration
    for p, state in enumerate(each.states):
        name = state.removeprefix(f"{END}.")
        last = p == whole.turns
        yield Start(
            task_id=each.episode.task_id,
            rollouts=1 if last else rollouts,
            name=name,
            expert=partial(whole.expert, p) if p else None,
            expert_turns=whole.turns,
        )


def values_of(
    of: Sequence[Prefixed], counts: Mapping[tuple[str, str], tuple[int, int]]
) -> Iterator[EpisodeValues]:
    """The values of each episode all of whose states have a graded rollout.

    Args:
        of: the chosen episodes.
        counts: successes and graded rollouts by task and start.
    """
    for each in of:
        task_id = each.episode.task_id
        found = [counts.get((task_id, name.removeprefix(f"{END}."))) for name in each.states]
        if None not in found:
            known = [pair for pair in found if pair is not None]
            yield EpisodeValues(
                episode_id=each.episode.id,
                task_id=task_id,
                states=each.states,
                successes=tuple(won for won, _ in known),
                trials=tuple(n for _, n in known),
            )
