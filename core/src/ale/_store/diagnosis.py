"""Diagnosis of a run: its model, the causes of broken episodes, steps that learned nothing."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from attrs import frozen

from ale._store.index import Index
from ale.attempts import mean
from ale.errors import ContextLengthError
from ale.text import counted, shorten, shorten_middle
from ale.types import Episode, ScoredEpisode, StepScore

_WIDTH = 200
_REASON_WIDTH = 80
_REASONS = 3
"""How many reasons of abstentions are named."""
_VARYING = re.compile(r"\b[0-9a-f]{8,}\b|(?<=:)[0-9]{4,5}\b|\b[0-9]+\.[0-9]+\b")
"""Ids, ports and durations differ between failures with the same cause; status codes do not."""
_NUMBER = re.compile(r"[0-9]+")


def model_name(config: Mapping[str, Any]) -> str | None:
    """The name of the model in a run's config; None if its model has no name."""
    name = (config.get("llm") or {}).get("model")
    return name if isinstance(name, str) and name else None


class Cause(NamedTuple):
    """One reason why episodes broke."""

    n: int
    """Number of episodes."""
    message: str
    """``agent: LLMError: connection refused``, as the first of these episodes has it."""
    episode_id: str
    """The first of these episodes."""


class Causes:
    """Counts the causes of broken episodes; messages that differ only in ids and ports are one."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, tuple[str, str]] = {}

    def add(self, episode: Episode) -> None:
        """Count an episode if it broke."""
        if episode.failure is None:
            return
        failure = episode.failure
        message = shorten_middle(f"{failure.stage}: {failure.kind}: {failure.message}", _WIDTH)
        # How many tokens a request has differs from task to task.
        varying = _NUMBER if failure.kind == ContextLengthError.__name__ else _VARYING
        cause = varying.sub("*", message)
        self._counts[cause] += 1
        self._first.setdefault(cause, (message, episode.id))

    def __len__(self) -> int:
        """Number of different causes."""
        return len(self._counts)

    def common(self, number: int) -> Iterator[Cause]:
        """The `number` most common ones, most common first."""
        for cause, count in self._counts.most_common(number):
            yield Cause(count, *self._first[cause])

    def others(self, number: int) -> int:
        """Episodes that broke for none of the `number` most common causes."""
        return self._counts.total() - sum(n for _, n in self._counts.most_common(number))

    def lines(self, number: int) -> Iterator[str]:
        """``7 x agent: LLMError: connection refused``, and how many broke for other reasons."""
        for count, message, _ in self.common(number):
            yield f"{count} x {message}"
        if others := self.others(number):
            yield f"{others} x for other reasons"


SKIPPED = "steps_skipped"
"""Metric of a trainer: 1 for a step whose updates it has undone, as one was not finite."""
WITHOUT_GRADIENT = "updates_without_gradient"
"""Metric of a trainer: updates that it did not make, as their gradient was 0."""
GROUPS_SHORT = "groups_short"
"""Metric of a step: groups with fewer episodes than they were to have."""
NOT_FINITE = "a loss or gradient was not finite"
TIED = "no group had two different rewards"
DROPPED = "every token was masked, clipped or dropped by the correction"


@frozen(kw_only=True)
class Learning:
    """Which training steps changed the policy, of those whose trainer reports ``updates``."""

    steps: Sequence[int]
    idle: Sequence[int]
    """Steps without an update."""
    tied: Sequence[int] = ()
    """Number of these steps in which no group had two different rewards."""
    skipped: Sequence[int] = ()
    """Number of these steps that the trainer skipped, as a loss or gradient was not finite."""
    dropped: Sequence[int] = ()
    """Number of these steps whose gradient was 0, although some tokens had a weight."""

    def warning(self) -> str | None:
        """One sentence for people; None where every step made an update."""
        if not self.idle:
            return None
        where = f"in {len(self.idle)} of {len(self.steps)} steps"
        if len(self.idle) == len(self.steps):
            where = "in any step: nothing was learned"
        dropped = len(self.dropped)
        causes = {NOT_FINITE: len(self.skipped), TIED: len(self.tied), DROPPED: dropped}
        reasons = [
            cause if n == len(self.idle) else f"{cause} in {n} of them"
            for cause, n in causes.items()
            if n
        ]
        reason = f" ({', '.join(reasons)})" if reasons else ""
        return f"no update {where}{reason}"


def learning(events: Iterable[Mapping[str, Any]], index: Index) -> Learning:
    """Which of a run's training steps made an update.

    Args:
        events: the run's events.
        index: the run's episodes.
    """
    reports: dict[int, Mapping[str, float]] = {}
    for event in events:
        metrics = event.get("metrics") or {}
        if event.get("event") == "step_finished" and metrics.get("updates") is not None:
            reports[event["step"]] = metrics
    idle = [step for step, metrics in reports.items() if metrics["updates"] == 0]
    skipped = [step for step in idle if reports[step].get(SKIPPED)]
    dropped = [step for step in idle if reports[step].get(WITHOUT_GRADIENT)]
    dropped = [step for step in dropped if step not in skipped]
    return Learning(
        steps=[*reports],
        idle=idle,
        tied=[s for s in idle if s not in (*skipped, *dropped) and _tied(index, s)],
        skipped=skipped,
        dropped=dropped,
    )


def short_groups(events: Iterable[Mapping[str, Any]]) -> str | None:
    """How many groups lacked an episode when a step learned from them, for people; None of none."""
    # Of a step that was done again after a resume, the later event counts.
    found = {
        event["step"]: int((event.get("metrics") or {}).get(GROUPS_SHORT, 0))
        for event in events
        if event.get("event") == "step_finished"
    }
    if not (n := sum(found.values())):
        return None
    steps = counted(sum(number > 0 for number in found.values()), "step")
    return f"{n}  (learned from with fewer episodes, in {steps}: what was in their place broke too)"


def ended_because(events: Iterable[Mapping[str, Any]]) -> str | None:
    """Why the run ended before its end, in words; None if it did not, or was resumed since.

    Args:
        events: the run's.
    """
    cause = None
    for event in events:
        if event.get("event") in ("run_finished", "run_resumed"):
            cause = event.get("cause")
    return cause


def alerts(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """Alerts of the rules of ``run.alert_if``, in words, oldest first.

    Args:
        events: the run's.
    """
    return [
        f"step {event['step']}: {event['rule']} (it is {event['value']:.4g})"
        for event in events
        if event.get("event") == "alert" and not event["stops"]
    ]


def adapted(events: Iterable[Mapping[str, Any]]) -> str | None:
    """The number of episodes at once that holds, for people; None if it is the config's.

    ``run.concurrency: auto`` has found it, or a person has asked for it while the run ran.

    Args:
        events: the run's.
    """
    changes: list[Mapping[str, Any]] = []
    asked: Mapping[str, Any] | None = None
    for event in events:
        name = event.get("event")
        if name == "concurrency":
            changes.append(event)
        elif name == "steered" and event["action"] == "concurrency":
            asked = event
            changes = [] if event["auto"] else changes
        elif name == "run_resumed":
            asked = None  # it begins with the config's
        elif name == "config_changed" and "run.concurrency" in event["changes"]:
            changes = []
    if asked is not None and not asked["auto"]:
        had = f"  (auto had come to {changes[-1]['proved']})" if changes else ""
        return f"{asked['concurrency']} at once, as was asked{had}"
    if changes:
        return _found(changes)
    return None if asked is None else f"{asked['concurrency']} at once, with which auto begins"


def _found(changes: Sequence[Mapping[str, Any]]) -> str:
    last, limits = changes[-1], {each[name] for each in changes for name in ("before", "limit")}
    between = f"{min(limits)} to {max(limits)} were tried, in {counted(len(changes), 'change')}"
    return f"{last['proved']} at once  ({between}; {last['why']})"


def _tied(index: Index, step: int) -> bool:
    groups = list(index.group_rewards(step).values())
    return bool(groups) and all(len({*rewards}) < 2 for rewards in groups)


def scored(rows: Iterable[ScoredEpisode]) -> Iterator[tuple[str, str]]:
    """The name of each scorer with how many chunks it scored, and why it abstained."""
    scores: dict[str, list[StepScore]] = {}
    for row in rows:
        scores.setdefault(row.scorer, []).extend(row.scores)
    for name, given in scores.items():
        values = [each.value for each in given if each.value is not None]
        found = f"mean {mean(values):.3f}" if values else "no value"
        yield name, f"{len(values)} of {counted(len(given), 'chunk')}, {found}"
        reasons = Counter(each.abstained for each in given if each.value is None)
        for why, n in reasons.most_common(_REASONS):
            yield "", f"{n} abstained: {shorten(str(why), _REASON_WIDTH)}"
