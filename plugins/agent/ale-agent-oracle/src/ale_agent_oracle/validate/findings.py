"""Findings about each task, from the runs of a validation."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from ale.intervals import success_interval
from ale.runs import RunReader
from ale.text import counted, seconds, shorten
from ale.types import Environment, Episode, Task
from ale_agent_oracle.attack import NOT_TRIED
from ale_agent_oracle.validate.badge import is_contested
from ale_agent_oracle.validate.overlap import NEAR, Near, overlap
from ale_agent_oracle.validate.phases import (
    AGAIN,
    ATTACKS,
    MODEL,
    NOTHING,
    OFFLINE,
    READ,
    SOLUTION,
    UNPLUGGED,
)

_SLACK = 0.5
"""Share of a time limit that a solution may use: a busy machine is twice as slow."""
_SHOWN = 3
_ENDED = re.compile(r"\d+ process(es)? of the agent (was|were) ended before the (check|tests)")
_FETCHES = re.compile(
    r"\b(apt(-get)?\s+(-\S+\s+)*install|pip3?\s+install|npm\s+(install|i)\b|curl\b|wget\b|"
    r"git\s+clone|apk\s+add|dnf\s+install)"
)
_PINNED = re.compile(r"[=~]=\s*\d|--require-hashes|sha256|@[0-9a-f]{40}|\w=\d")
"""Marks of a line that says what is fetched."""


@frozen(kw_only=True)
class Finding:
    """One task, as the validation found it."""

    task: str
    solution: Sequence[float | None]
    """Rewards of the reference solution; None where the episode broke."""
    nothing: Sequence[float | None]
    hackable_by: Sequence[str]
    """Attacks with the full reward."""
    not_tried: Sequence[str]
    """Attacks that the sandbox does not allow, or whose episodes broke."""
    agent_s: float
    """The longest that the solution took, in seconds."""
    solved: tuple[int, int] | None
    """Attempts of the model and how many of them succeeded."""
    problems: Sequence[str]
    """Why it is not valid, a phrase each."""
    notes: Sequence[str]
    """Things that its author may want to change, or that were not checked."""

    @property
    def valid(self) -> bool:
        """Whether nothing speaks against training on it."""
        return not self.problems

    @property
    def passed_by(self) -> Sequence[str]:
        """The attacks that pass it, if nothing else speaks against training on it."""
        return self.hackable_by if len(self.problems) == 1 else ()

    @property
    def difficulty(self) -> tuple[float, tuple[float, float]] | None:
        """The model's success rate with its 95% interval."""
        if self.solved is None or not self.solved[0]:
            return None
        n, won = self.solved
        return won / n, success_interval([(n, won)])


@frozen(kw_only=True)
class _Seen:
    """The episodes of one task by the names of the phases."""

    task: Task
    episodes: Mapping[str, Sequence[Episode]]
    near: Mapping[str, Near] = field(factory=dict)
    band: tuple[float, float] | None = None

    def rewards(self, phase: str) -> Sequence[float | None]:
        again = phase == SOLUTION and self.needs_badge
        return [episode.reward for episode in self.episodes.get(AGAIN if again else phase, ())]

    @property
    def needs_badge(self) -> bool:
        """Whether the solution is contested, but not where it is known what its pass uses."""
        again = self.episodes.get(AGAIN, ())
        contested = [is_contested(each) for each in self.episodes.get(SOLUTION, ())]
        return any(contested) and any(again) and all(each.reward == 1 for each in again)


def findings(
    tasks: Sequence[Task],
    runs: Mapping[str, RunReader],
    *,
    band: tuple[float, float] | None = None,
    against: Mapping[str, str] | None = None,
) -> Sequence[Finding]:
    """One for each task, in the order of the tasks.

    Args:
        tasks: as they were loaded.
        runs: by phase.
        band: success rates of the model between which a task is to be, both included.
        against: goals of other tasks by id, which none may nearly repeat.
    """
    episodes: dict[str, dict[str, list[Episode]]] = defaultdict(lambda: defaultdict(list))
    for phase, run in runs.items():
        for episode in run.episodes:
            episodes[episode.task_id][phase].append(episode)
    goals = {task.id: task.goal for task in tasks}
    pairs = [*overlap(goals), *overlap(goals, against or {})]
    near = {each.task: each for each in sorted(pairs, key=lambda pair: pair.share)}
    return [
        _finding(_Seen(task=task, episodes=episodes[task.id], near=near, band=band))
        for task in tasks
    ]


def _finding(seen: _Seen) -> Finding:
    tried = [name for name in ATTACKS if name != READ and seen.episodes.get(name)]
    missed = [name for name in tried if _missed(seen.episodes[name][-1])]
    attempts = seen.rewards(MODEL)
    graded = [reward for reward in attempts if reward is not None]
    return Finding(
        task=seen.task.id,
        solution=seen.rewards(SOLUTION),
        nothing=seen.rewards(NOTHING),
        hackable_by=_hackable(seen),
        not_tried=missed,
        agent_s=max((e.seconds.get("agent", 0.0) for e in seen.episodes[SOLUTION]), default=0.0),
        solved=(len(graded), sum(r == 1 for r in graded)) if attempts else None,
        problems=[*_problems(seen)],
        notes=[*_notes(seen, missed)],
    )


def _hackable(seen: _Seen) -> Sequence[str]:
    """The attacks that got the full reward, unless doing nothing does."""
    if 1 in seen.rewards(NOTHING):
        return []
    tried = {name: seen.episodes[name][-1] for name in ATTACKS if seen.episodes.get(name)}
    return [
        name
        for name, episode in tried.items()
        if name != READ and episode.reward == 1 and not _missed(episode)
    ]


def _contested(seen: _Seen, phase: str) -> bool:
    """Whether nobody can tell an episode's work from a forgery; it counts as 0 here."""
    scores = [score for each in seen.episodes.get(phase, ()) for score in each.scores]
    return any(score.contested is not None for score in scores)


def _missed(episode: Episode) -> bool:
    return episode.broken or episode.trajectory.stop.detail.startswith(NOT_TRIED)


def _problems(seen: _Seen) -> Iterator[str]:
    if not all(part.goal.strip() for part in seen.task.steps or (seen.task,)):
        yield "its goal is empty"
    yield from _unsolved(seen)
    rewards = seen.rewards(NOTHING)
    given = [each for each in rewards if each]
    if given:
        yield f"doing nothing gets {max(given):.3g}"
    for phase in (SOLUTION, NOTHING):
        found = {each for each in seen.rewards(phase) if each is not None}
        if len(found) > 1:
            listed = ", ".join(f"{each:.3g}" for each in seen.rewards(phase) if each is not None)
            yield f"rewards of the same work differ ({phase}: {listed})"
        yield from _broken(seen, phase)
    if hackable := _hackable(seen):
        yield f"passed by cheating: {', '.join(hackable)}"
    yield from _readable(seen)
    yield from _left(seen)
    yield from _slow(seen)
    near = seen.near.get(seen.task.id)
    if near is not None and near.share >= NEAR:
        yield f"nearly the same goal as {near.other} ({near.share:.0%})"
    yield from _outside(seen)


def _unsolved(seen: _Seen) -> Iterator[str]:
    parts = seen.task.steps or (seen.task,)
    if any(part.solution is None for part in parts):
        why = seen.task.metadata.get("no_solution")
        yield "no reference solution" + (f": {why}" if why else "")
        return
    rewards = [each for each in seen.rewards(SOLUTION) if each is not None]
    if rewards and min(rewards) < 1:
        why = ", as its verdict is contested" if _contested(seen, SOLUTION) else ""
        yield f"the solution gets {min(rewards):.3g}{why}"


def _broken(seen: _Seen, phase: str) -> Iterator[str]:
    failures = [e.failure for e in seen.episodes.get(phase, ()) if e.failure is not None]
    without = any(part.solution is None for part in seen.task.steps or (seen.task,))
    if failures and not (phase == SOLUTION and without):
        first = failures[0]
        yield f"{phase} broke while {first.stage}: {shorten(first.message, 100)}"


def _breaks(seen: _Seen, phase: str) -> bool:
    return any(each.broken for each in seen.episodes.get(phase, ()))


def _readable(seen: _Seen) -> Iterator[str]:
    for episode in seen.episodes.get(READ, ())[-1:]:
        outputs = [o.content for turn in episode.turns for o in turn.observations]
        found = [line for output in outputs for line in output.splitlines() if ": /" in line]
        found += [line for output in outputs for line in output.splitlines() if ": ./" in line]
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            yield f"the agent can read what it should not: {'; '.join(found[:_SHOWN])}{more}"


def _left(seen: _Seen) -> Iterator[str]:
    """Processes, containers and folders that could not be removed after an episode."""
    for phase in (SOLUTION, NOTHING):
        errors = [e.metadata["teardown"] for e in seen.episodes.get(phase, ()) if _littered(e)]
        if errors:
            yield f"leaves something behind ({phase}): {shorten(str(errors[0][0]), 100)}"


def _littered(episode: Episode) -> bool:
    return bool(episode.metadata.get("teardown"))


def _slow(seen: _Seen) -> Iterator[str]:
    limit = seen.task.constraints.time_limit_s
    took = max((e.seconds.get("agent", 0.0) for e in seen.episodes[SOLUTION]), default=0.0)
    if limit is not None and took > _SLACK * limit:
        yield f"the solution takes {seconds(took)} of a limit of {seconds(limit)}"
    if any(score.timed_out for e in seen.episodes[SOLUTION] for score in e.scores):
        yield "grading the solution reaches a time limit"
    allowed = _grading_limit(seen.task)
    took = max((e.seconds.get("grading", 0.0) for e in seen.episodes[SOLUTION]), default=0.0)
    if allowed is not None and took > _SLACK * allowed:
        yield f"grading the solution takes {seconds(took)} of limits of {seconds(allowed)} together"


def _grading_limit(task: Task) -> float | None:
    """The sum of its criteria's time limits; None where one does not say its own."""
    parts = [part for part in task.steps or (task,)]
    limits = [each.options.get("timeout_s") for part in parts for each in part.criteria]
    numbers = [each for each in limits if isinstance(each, int | float)]
    return sum(numbers) if numbers and len(numbers) == len(limits) else None


def _outside(seen: _Seen) -> Iterator[str]:
    graded = [each for each in seen.rewards(MODEL) if each is not None]
    if seen.band is not None and graded:
        rate = sum(each == 1 for each in graded) / len(graded)
        low, high = seen.band
        if not low <= rate <= high:
            yield f"the model solves {rate:.0%}, outside {low:.0%} to {high:.0%}"


def _notes(seen: _Seen, missed: Sequence[str]) -> Iterator[str]:
    yield from _images(seen.task.environment)
    yield from _offline(seen)
    yield from _unplugged(seen)
    if seen.needs_badge:
        yield (
            "the solution's verdict is contested without a badge; with one it counts, as do "
            "forgeries at the same paths"
        )
    near = seen.near.get(seen.task.id)
    if near is not None and near.share < NEAR:
        yield f"much of its goal is that of {near.other} ({near.share:.0%})"
    if ended := _ENDED.search(" ".join(_details(seen, SOLUTION))):
        yield f"the solution leaves processes, and {ended[0]}"
    if missed:
        yield f"{counted(len(missed), 'attack')} not tried: {', '.join(missed)}"
    if contested := [name for name in ATTACKS if _contested(seen, name)]:
        yield f"contested, so 0 in training and 1 elsewhere: {', '.join(contested)}"
    damaged = [name for name in ATTACKS for e in seen.episodes.get(name, ())[-1:] if e.broken]
    if damaged and not _breaks(seen, NOTHING):
        yield f"an agent can break its episode: {', '.join(damaged)}"


def _images(environment: Environment) -> Iterator[str]:
    if environment.image is not None and "@sha256:" not in environment.image:
        yield f"the image {environment.image} is not pinned by a digest"
    if environment.build is not None:
        moving = [*_moving(Path(environment.build))]
        if moving:
            yield f"built from {', '.join(moving)}, not pinned by a digest"
        if fetched := [*dict.fromkeys(_fetching(Path(environment.build)))]:
            yield f"its build fetches what may change: {', '.join(fetched)}"


def _offline(seen: _Seen) -> Iterator[str]:
    """A build that fails without a network, though no line of it says that it fetches."""
    build = seen.task.environment.build
    failures = [e.failure for e in seen.episodes.get(OFFLINE, ()) if e.failure is not None]
    # Else it was not tried, or it was built, and then broke.
    failures = [f for f in failures if f.kind != "UnsupportedError" and f.stage == "sandbox"]
    if _breaks(seen, NOTHING):
        return  # with a network, too
    if build is not None and failures and not [*_fetching(Path(build))]:
        yield f"its image can't be built without a network: {shorten(failures[0].message, 200)}"


def _unplugged(seen: _Seen) -> Iterator[str]:
    """The worth of the solution without the network that the task has."""
    solved = [each for each in seen.rewards(SOLUTION) if each is not None]
    has = any(part.constraints.network for part in (seen.task, *seen.task.steps))
    for episode in seen.episodes.get(UNPLUGGED, ())[-1:] if has and solved else ():
        reward = episode.reward
        if reward is not None and reward < min(solved):
            yield f"the solution gets {reward:.3g} without a network: the verdict rests on it"
        elif reward is not None:
            yield "has a network, which its solution does not need"
        elif episode.failure is not None and episode.failure.kind != "UnsupportedError":
            why = shorten(episode.failure.message, 100)
            yield f"the solution breaks without a network: {why}"


def _details(seen: _Seen, phase: str) -> Iterator[str]:
    for episode in seen.episodes.get(phase, ()):
        yield from (score.detail for score in episode.scores)


def _fetching(build: Path) -> Iterator[str]:
    """The programs by which a Dockerfile fetches something that it does not pin."""
    file = build / "Dockerfile" if build.is_dir() else build
    if not file.exists() or file.suffix in (".yaml", ".yml"):
        return
    for line in file.read_text(errors="replace").splitlines():
        for found in _FETCHES.finditer(line):
            if not _PINNED.search(line):
                yield " ".join(found[0].split())


def _moving(build: Path) -> Iterator[str]:
    """The images that a Dockerfile starts from by a name that may move."""
    file = build / "Dockerfile" if build.is_dir() else build
    if not file.exists() or file.suffix in (".yaml", ".yml"):
        return
    stages: set[str] = {"scratch"}
    for line in file.read_text(errors="replace").splitlines():
        words = [word for word in line.split() if not word.startswith("--")]
        if len(words) > 1 and words[0].upper() == "FROM":
            if "@sha256:" not in words[1] and words[1] not in stages:
                yield words[1]
            if len(words) > 3 and words[2].upper() == "AS":
                stages.add(words[3])
