"""Watch the figures of steps: alerts, and rules that stop a run."""

import asyncio
import contextlib
import json
import math
import shutil
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from ale._config import RunConfig
from ale._config.rules import Rule
from ale._run.parts import numbered
from ale.errors import Problem, nearest
from ale.plugin import BuildContext
from ale.protocols import NamesMetrics

DISK = "disk_free_gb"
"""Only rules know it: it depends on the machine, so no step stores it."""
STAGES = ("sandbox", "setup", "agent", "grading", "teardown", "sampling", "tools")
OWN = (
    *("success", "mean_reward", "mean_return", "success_from_starts", "episodes", "broken"),
    *("groups_short", "groups_with_signal", "staleness_mean", "staleness_max", "groups_too_stale"),
    *("groups_dropped", "groups_waiting", "trainer_waiting_share", "rollouts_waiting_share"),
    *("seconds.evaluation", "seconds.rollouts", "seconds.scoring", "seconds.crediting"),
    *("seconds.training", "seconds.hand_over", "seconds.checkpoint", "seconds.idle"),
    *(f"seconds.episodes.{stage}" for stage in STAGES),
    DISK,
)
"""The metrics of every step, whatever trains."""
_GB = 1e9
_TIMEOUT_S = 10.0
_WATCHED = ("stop_if", "alert_if")


@frozen
class Alert:
    """A rule that has begun to hold."""

    rule: Rule
    step: int
    value: float
    stops: bool

    def __str__(self) -> str:
        what = "run.stop_if" if self.stops else "run.alert_if"
        return (
            f"step {self.step}: {self.rule.metric} is {self.value:.4g} ({what}: {self.rule.text})"
        )


@define
class Watch:
    """Compares the steps of one process with the rules of a run's config."""

    stop_if: tuple[Rule, ...]
    alert_if: tuple[Rule, ...]
    stopped: Alert | None = field(default=None, init=False)
    """Why the run is to end."""
    _held: "Counter[tuple[bool, str]]" = field(factory=Counter, init=False)
    """Steps in a row for which a rule has held, by whether it stops and its text."""
    _missed: set[str] = field(factory=set, init=False)

    @classmethod
    def of(cls, config: RunConfig) -> "Watch":
        """The rules of a config."""
        given = (map(Rule.parse, getattr(config.run, name)) for name in _WATCHED)
        stop_if, alert_if = ({rule.text: rule for rule in rules} for rules in given)
        return cls(tuple(stop_if.values()), tuple(alert_if.values()))

    def of_step(self, step: int, figures: Mapping[str, float]) -> Iterator[Alert]:
        """The rules that begin to hold with a step."""
        rules = [(each, False) for each in self.alert_if] + [(each, True) for each in self.stop_if]
        for rule, stops in rules:
            value, key = figures.get(rule.metric), (stops, rule.text)
            if value is None or not rule.holds(value):
                del self._held[key]
                continue
            self._held[key] += 1
            if self._held[key] == rule.steps:
                alert = Alert(rule, step, value, stops)
                if stops and self.stopped is None:
                    self.stopped = alert
                yield alert

    def missing(self, figures: Mapping[str, float]) -> Iterator[str]:
        """Says, once for each, which metrics of the rules a step lacks that none is known to have,
        and which are NaN, for which no rule holds.

        A trainer that does not name its metrics is asked in vain at the start.
        """
        for rule in (*self.stop_if, *self.alert_if):
            name = rule.metric
            if math.isnan(figures.get(name, 0.0)) and f"{name} is NaN" not in self._missed:
                self._missed.add(f"{name} is NaN")
                yield f"the rule '{rule.text}' can't hold: {name} is NaN in this step"
            if name not in figures and name not in (*OWN, *self._missed):
                self._missed.add(name)
                hint = nearest(name, figures)
                yield f"the rule '{rule.text}' waits for a metric that this step lacks" + (
                    f"; {hint}" if hint else ""
                )


def figures_of(metrics: Mapping[str, float], folder: Path) -> dict[str, float]:
    """The metrics of a step, and those of the machine."""
    return {**metrics, DISK: shutil.disk_usage(folder).free / _GB}


def rule_problems(config: RunConfig, trainer: object, context: BuildContext) -> Iterator[Problem]:
    """Rules that can never hold, and an address that can't be told of them."""
    watch, address = Watch.of(config), config.run.webhook_env
    given = {name: rules for name in _WATCHED if (rules := getattr(watch, name))}
    if address is not None:
        value = context.environ.get(address, "")
        if not context.checking and not value.startswith(("http://", "https://")):
            yield Problem(
                message=f"the variable {address} is {'no web address' if value else 'not set'}",
                path="run.webhook_env",
                expected="the address that gets the alerts, http://... or https://...",
            )
        if not given:
            yield Problem(
                message="there are no alerts without rules",
                path="run.webhook_env",
                expected="run.alert_if or run.stop_if beside it",
            )
    for name, rules in given.items():
        if config.trainer is None:
            message, expected = "without a trainer there are no steps to watch", "a trainer"
            yield Problem(message=message, path=f"run.{name}", expected=expected)
        elif isinstance(trainer, NamesMetrics):
            scorers = numbered(part.name for part in config.scorers)
            of_scorers = [f"abstained_{scorer}" for scorer in scorers]
            yield from _unknown(name, rules, (*OWN, *of_scorers, *trainer.metric_names))


def _unknown(option: str, rules: Collection[Rule], known: Collection[str]) -> Iterator[Problem]:
    for rule in rules:
        if rule.metric not in known:
            yield Problem(
                message=f"no step has a metric '{rule.metric}'",
                path=f"run.{option}",
                expected=f"one of {', '.join(sorted(known))}",
                hint=nearest(rule.metric, known),
            )


async def post(address: str, content: Mapping[str, Any]) -> None:
    """Send a message as JSON.

    Raises:
        OSError: it was not taken, or nobody answered in time; without the address, which may be
            a secret.
    """
    # Imported here: it takes some 0.05 s, and most runs tell nobody.
    import http.client

    loop = asyncio.get_running_loop()
    answered = loop.create_future()

    def send() -> None:
        try:
            _send(address, json.dumps(content).encode())
            error = None
        except OSError as failed:
            error = failed
        except (http.client.HTTPException, ValueError) as failed:  # whose texts have what was given
            error = OSError(f"no web address, or no web server there ({type(failed).__name__})")
        with contextlib.suppress(RuntimeError):  # the run has ended
            loop.call_soon_threadsafe(_end, answered, error)

    # The run waits for the threads of its executor, and an answer may have no end.
    threading.Thread(target=send, daemon=True).start()
    try:
        await asyncio.wait_for(answered, _TIMEOUT_S)
    except TimeoutError as error:
        raise OSError(f"no answer in {_TIMEOUT_S:g} s") from error


def _send(address: str, data: bytes) -> None:
    import urllib.request

    request = urllib.request.Request(  # noqa: S310 - checked at the start
        address, data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310
        pass


def _end(answered: "asyncio.Future[None]", error: OSError | None) -> None:
    if answered.done():
        return
    if error is None:
        answered.set_result(None)
    else:
        answered.set_exception(error)
