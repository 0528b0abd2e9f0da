"""Results of the attempts of a benchmark's run."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import Factory, frozen

from ale.errors import InputError
from ale.runs import Causes, Registry, RunReader
from ale.types import Episode, Task
from ale_bench.offered import benchmark_of
from ale_bench.running import stored_run
from ale_figures.statistics import (
    Attempts,
    MeanOverTasks,
    attempts_from,
    is_attempt,
    mean_over_tasks,
    mean_pass_at,
)

FEW = 5
"""Up to so many samples, pass@k is shown for each k."""
ENOUGH_FOR_VOTES = 3


@frozen(kw_only=True)
class Results:
    """A run of a benchmark so far."""

    path: Path
    benchmark: str
    model: str
    temperature: float | None
    agent: str
    sandbox: str
    k: int
    """Samples per problem."""
    tasks: Mapping[str, Task]
    """The problems of the run, by id."""
    attempts: Mapping[str, Attempts]
    """Of every problem, also where there are none yet."""
    groups: Mapping[str, Mapping[str, Sequence[str]]]
    """For each key, such as ``level``, and each of its values: the ids of its problems."""
    causes: Sequence[str]
    """Why attempts broke, a line each."""
    contested: Mapping[str, float | None] = Factory(dict)
    """Attempts whose verdict their agent could have made: by id, what each counts as."""
    regraded: tuple[Path, Mapping[str, float | None]] | None = None
    """As of `RunReader`."""

    @property
    def broken(self) -> int:
        """Attempts that have no result, because the infrastructure failed."""
        return sum(each.broken for each in self.attempts.values())

    @property
    def unfinished(self) -> int:
        """Problems that have not been attempted `k` times yet."""
        return sum(each.n + each.broken < self.k for each in self.attempts.values())

    @property
    def has_answers(self) -> bool:
        """Whether the criterion says what was answered."""
        return any(answer for each in self.attempts.values() for answer in each.answers)

    @property
    def votes(self) -> bool:
        """Whether majority votes make sense."""
        return self.k >= ENOUGH_FOR_VOTES and self.has_answers

    def pass_at(self, k: int, ids: Iterable[str] | None = None) -> MeanOverTasks:
        """Mean pass@k over all problems, or over some."""
        chosen = self.attempts if ids is None else ids
        return mean_pass_at((self.attempts[each] for each in chosen), k)

    def majority(self, ids: Iterable[str] | None = None) -> MeanOverTasks:
        """Mean success of the majority vote over all problems with `k` attempts, or over some."""
        chosen = self.attempts if ids is None else ids
        return mean_over_tasks(majority_vote(self.attempts[each], self.k) for each in chosen)


def majority_vote(attempts: Attempts, k: int) -> float | None:
    """Whether the most frequent answer of k attempts is right; 0 where none has an answer.

    Where several answers are equally frequent, the share of them that is right.

    Returns:
        In [0, 1]; None where there are not k graded attempts.
    """
    if attempts.n != k:
        return None
    cast = Counter(answer for answer in attempts.answers if answer is not None)
    leaders = {answer for answer, n in cast.items() if n == max(cast.values())}
    pairs = zip(attempts.answers, attempts.rewards, strict=True)
    right = [reward == 1.0 for answer, reward in pairs if answer in leaders]
    return sum(right) / len(right) if right else 0.0


def shown_ks(k: int) -> Sequence[int]:
    """The k of pass@k to show: all if they are few, else 1, 2, 5, 10, 20, 50, ... and the last."""
    if k <= FEW:
        return range(1, k + 1)
    rounds = (digit * 10**power for power in range(len(str(k))) for digit in (1, 2, 5))
    return sorted({k, *(each for each in rounds if each <= k)})


def read_results(folder: Path, registry: Registry) -> Results:
    """The results of a run, or of the run in a folder of ``ale eval``.

    Raises:
        InputError: there is no run.
    """
    path = stored_run(folder)
    if path is None:
        expected = "a run directory, or the folder that ale eval --out names"
        hint = None if folder.exists() else "there is no such folder"
        raise InputError.of("no run in here", file=str(folder), expected=expected, hint=hint)
    reader = RunReader(path)
    config = reader.manifest["config"]
    tasks = {task.id: task for task in reader.tasks}
    causes = Causes()

    contested: dict[str, float | None] = {}

    def counted() -> Iterable[Episode]:
        for episode in reader.episodes:
            if is_attempt(episode):
                causes.add(episode)
                if episode.contested:
                    contested[episode.id] = episode.reward
                yield episode

    found = attempts_from(counted())
    if config["run"].get("tasks_per_step") is not None:  # it draws some, and not to attempt all
        tasks = {each: task for each, task in tasks.items() if each in found}
    benchmark = benchmark_of(registry, config["tasks"])
    return Results(
        path=path,
        benchmark=_short(config["tasks"]) if benchmark is None else benchmark.name,
        model=_model(config),
        temperature=(config.get("llm") or {}).get("temperature"),
        agent=_short(config["agent"]),
        sandbox=str(reader.manifest.get("sandbox", {}).get("type", "")),
        k=int(config["run"]["rollouts"]),
        tasks=tasks,
        attempts={each: found.get(each, Attempts()) for each in tasks},
        groups=_groups(tasks.values(), () if benchmark is None else benchmark.groups),
        causes=tuple(causes.lines(FEW)),
        contested=contested,
        regraded=reader.regraded,
    )


def _short(section: Mapping[str, Any]) -> str:
    return str(section["type"]).rpartition("/")[2]


def _model(config: Mapping[str, Any]) -> str:
    llm = config.get("llm")
    return "no model" if llm is None else str(llm.get("model") or _short(llm))


def _groups(tasks: Iterable[Task], keys: Sequence[str]) -> dict[str, dict[str, Sequence[str]]]:
    groups: dict[str, dict[str, list[str]]] = {key: {} for key in keys}
    for task in tasks:
        for key in keys:
            if key in task.metadata:
                groups[key].setdefault(str(task.metadata[key]), []).append(task.id)
    return {
        key: {value: ids for value, ids in sorted(found.items())}
        for key, found in groups.items()
        if found
    }
