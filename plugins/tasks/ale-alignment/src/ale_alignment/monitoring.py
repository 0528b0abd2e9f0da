"""Stored runs, and the findings of ``ale monitor`` about them."""

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from attrs import frozen

from ale.errors import InputError, StoreError
from ale.runs import RunReader
from ale.strict import nearest
from ale.text import counted, table
from ale.types import Episode, Task
from ale_alignment.statistics import (
    MOST_PAIRS,
    Statistic,
    correlation,
    n_grams,
    overlap,
    sample,
    trend,
)
from ale_figures.statistics import LEVEL, holm

AUDIT = "audit.jsonl"
REWARD = "reward"
_MOST_PARTS = 3
"""A criterion that every episode has at most so often is shown by number, else by its mean."""
_NAMED = 3
_MEAN = "the mean of each task and step subtracted"


@frozen(kw_only=True)
class Run:
    """A stored run: one agent, and its graders."""

    name: str
    reader: RunReader
    episodes: tuple[Episode, ...]
    """The graded ones of training, in the order of steps and rollouts."""
    tasks: Mapping[str, Task]


def monitor(paths: Sequence[Path], proxy: str | None, judge: str | None) -> Iterator[str]:
    """The findings about some runs, in lines for people.

    Args:
        paths: run directories; each is an agent.
        proxy: the score that is easy to satisfy, by the name of its criterion, ``NAME:2`` for the
            second of that name, or ``reward``.
        judge: the score to compare it with.

    Raises:
        InputError: no such score, or no graded episode.
    """
    _check_once(paths)
    runs = [_read(path) for path in paths]
    for run in runs:
        scores = scores_of(run.episodes)
        yield f"{run.name}: {counted(len(run.episodes), 'graded episode')}"
        yield from _graders(scores, run.episodes)
        if proxy is not None and judge is not None:
            yield from _parting(run, scores, proxy, judge)
        yield from audit_lines(run.reader)
        yield ""
    if len(runs) > 1:
        yield from _agents(runs)


def _check_once(paths: Sequence[Path]) -> None:
    """Refuse a run that is given twice, under whatever path: it agrees with itself."""
    seen: dict[Path, Path] = {}
    for path in paths:
        if (first := seen.get(path.resolve())) is not None:
            message = f"{path} is the same run as {first}, and agrees with itself"
            raise InputError.of(message, path="RUN", expected="runs of different agents, each once")
        seen[path.resolve()] = path


def _read(path: Path) -> Run:
    reader = RunReader(path)
    graded = [e for e in reader.episodes if e.reward is not None and e.split == "train"]
    if not graded:
        raise InputError.of("no graded episode", file=str(path))
    graded.sort(key=lambda e: (e.step, e.task_id, e.rollout))
    tasks = {task.id: task for task in reader.tasks}
    return Run(name=path.name, reader=reader, episodes=tuple(graded), tasks=tasks)


def scores_of(episodes: Sequence[Episode]) -> dict[str, list[float]]:
    """The scores by name, one per episode: the reward, and each criterion that all of them have."""
    parts = [_by_name(episode) for episode in episodes]
    found = {REWARD: [float(e.reward or 0.0) for e in episodes]}
    names = [name for name in parts[0] if all(name in each for each in parts)]
    for name in names:
        counts = {len(each[name]) for each in parts}
        found[name] = [math.fsum(each[name]) / len(each[name]) for each in parts]
        if len(counts) == 1 and 1 < max(counts) <= _MOST_PARTS:
            del found[name]
            for i in range(max(counts)):
                found[f"{name}:{i + 1}"] = [each[name][i] for each in parts]
    return found


def _by_name(episode: Episode) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for score in episode.scores:
        found.setdefault(score.criterion, []).append(score.value)
    return found


def _graders(scores: Mapping[str, Sequence[float]], episodes: Sequence[Episode]) -> Iterator[str]:
    names = [name for name in scores if name != REWARD]
    pairs = list(combinations(names, 2))
    tested = [
        correlation(
            [
                (group_of(e), a, b)
                for e, a, b in zip(episodes, scores[one], scores[other], strict=True)
            ]
        )
        for one, other in pairs
    ]
    if pairs:
        yield f"graders: correlation of their scores, {_MEAN}"
        yield _indented(_tests(pairs, tested))


def _agents(runs: Sequence[Run]) -> Iterator[str]:
    pairs = list(combinations(runs, 2))
    names = [(one.name, other.name) for one, other in pairs]
    matched = [_matched(one, other) for one, other in pairs]
    yield f"agents: correlation of their rewards, {_MEAN}"
    rewards = [
        correlation([(group, a.reward or 0.0, b.reward or 0.0) for group, a, b in found])
        for found in matched
    ]
    yield _indented(_tests(names, rewards))
    sampled = [sample(found) for found in matched]
    cut = any(len(few) < len(found) for few, found in zip(sampled, matched, strict=True))
    of_what = f", {MOST_PAIRS} pairs at random" if cut else ""
    yield f"agents: overlap of their n-grams, without those of the goals{of_what}"
    texts = [
        overlap([(block, _grams(one, a), _grams(one, b)) for block, a, b in found])
        for (one, _), found in zip(pairs, sampled, strict=True)
    ]
    yield _indented(_tests(names, texts, "overlap"))


def _matched(one: Run, other: Run) -> list[tuple[Hashable, Episode, Episode]]:
    """Episodes of the same group and rollout, with their group."""
    theirs = {(group_of(e), e.rollout): e for e in other.episodes}
    return [
        (group_of(e), e, theirs[group_of(e), e.rollout])
        for e in one.episodes
        if (group_of(e), e.rollout) in theirs
    ]


def group_of(episode: Episode) -> Hashable:
    """The key of rollouts that may be permuted: the task and its start, and the step.

    Over steps all agents learn, and all graders see better work.
    """
    return (episode.task_id, episode.step, episode.start)


def _grams(run: Run, episode: Episode) -> frozenset[str]:
    task = run.tasks.get(episode.task_id)
    return n_grams(_text(episode), n_grams(task.goal) if task else ())


def _text(episode: Episode) -> str:
    """All that the agent wrote: its messages, and the arguments of its calls."""
    parts = []
    for turn in episode.trajectory.turns:
        message = turn.completion.message
        parts += [message.content, *(call.arguments for call in message.tool_calls)]
    return "\n".join(parts)


def _tests(names: Sequence[tuple[str, str]], tested: Sequence[Statistic], what: str = "r") -> str:
    known = [each.p for each in tested if each.p is not None]
    corrected = iter(holm(known))
    rows = []
    for (one, other), each in zip(names, tested, strict=True):
        p = None if each.p is None else next(corrected)
        found = "-" if p is None else "yes" if p <= LEVEL else "no"
        numbers = [_number(each.value), _number(each.by_chance), _p(p), found]
        rows.append([one, other, str(each.n), *numbers])
    header = ["one", "other", "pairs", what, "by chance", "p (Holm)", "found"]
    return table(header, rows, right=(2, 3, 4, 5))


def _parting(
    run: Run, scores: Mapping[str, Sequence[float]], proxy: str, judge: str
) -> Iterator[str]:
    for option, name in (("--proxy", proxy), ("--judge", judge)):
        if name not in scores:
            expected = f"one of {', '.join(scores)}"
            message = f"no score '{name}' that all episodes of {run.name} have"
            hint = nearest(name, scores)
            raise InputError.of(message, path=option, expected=expected, hint=hint)
    steps = len({episode.step for episode in run.episodes}) > 1
    gaps: dict[float, list[float]] = {}
    for episode, one, other in zip(run.episodes, scores[proxy], scores[judge], strict=True):
        gaps.setdefault(episode.step if steps else episode.rollout, []).append(one - other)
    tested = trend(gaps)
    unit = "step" if steps else "rollout"
    yield f"{proxy} minus {judge}, over {counted(len(gaps), unit)}"
    first, last = (math.fsum(gaps[at]) / len(gaps[at]) for at in (min(gaps), max(gaps)))
    yield f"  first {_number(first)}, last {_number(last)}"
    if tested.value is None or tested.p is None:
        why = "too few to test" if len(gaps) < 3 else "the difference is always the same"
        yield f"  no trend: {why}"
        return
    line = f"{_number(tested.value)} per {unit}, p {_p(tested.p)}"
    parts = tested.value > 0 and tested.p <= LEVEL
    yield f"  {'they part' if parts else 'they do not part'}: {line}"


def audit_lines(reader: RunReader) -> Iterator[str]:
    """Is every episode of a run in its audit, from its start to its end?

    `ale audit verify` says whether the audit and the run are as they were written.
    """
    path = reader.path / AUDIT
    if not path.exists():
        yield "audit: none; with observers: [{type: audit}] a run has one"
        return
    events = list(_events(path))
    stored = [episode.id for episode in reader.episodes]
    finished = {event.get("episode") for event in events if event["event"] == "episode_finished"}
    staged = {event.get("episode") for event in events if event["event"] == "episode_stage"}
    numbers = [event["seq"] for event in events]
    problems = [
        *_missing("end", [each for each in stored if each not in finished]),
        *_missing("course", [each for each in stored if each not in staged]),
        *(["its numbers have gaps"] if numbers != list(range(1, len(numbers) + 1)) else []),
        *(["no start of the run"] if not _has(events, "run_started") else []),
    ]
    ended = (reader.manifest.get("outcome") or {}).get("outcome")
    if ended is not None and not _has(events, "run_finished"):
        problems.append(f"no end of the run, which was {ended}")
    whole = "; ".join(problems) or "complete"
    yield f"audit: {counted(len(events), 'line')} for {counted(len(stored), 'episode')}: {whole}"


def _events(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                event = json.loads(line)
                yield {**event, "event": event["event"], "seq": event["seq"]}
            except (ValueError, KeyError, TypeError) as error:
                raise StoreError(f"{path}:{number}: not a line of an audit: {error}") from error


def _has(events: Sequence[Mapping[str, Any]], name: str) -> bool:
    return any(event["event"] == name for event in events)


def _missing(what: str, ids: Sequence[str]) -> list[str]:
    if not ids:
        return []
    named = ", ".join(ids[:_NAMED]) + (", ..." if len(ids) > _NAMED else "")
    return [f"the {what} of {counted(len(ids), 'episode')} is missing ({named})"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
