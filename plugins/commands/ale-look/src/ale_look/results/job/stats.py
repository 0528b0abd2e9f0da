"""The numbers of a job: the content of its ``result.json``."""

import math
from collections import defaultdict
from typing import Any

from attrs import define, field

from ale.attempts import pass_at_k
from ale_look.results.job.trial import Trial


@define
class _Eval:
    """One agent with one model on one data set."""

    n: int = 0
    graded: int = 0
    totals: dict[str, list[float]] = field(factory=lambda: defaultdict(list))
    rewards: dict[str, dict[str, list[str]]] = field(
        factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    exceptions: dict[str, list[str]] = field(factory=lambda: defaultdict(list))
    passes: dict[str, list[bool]] = field(factory=lambda: defaultdict(list))
    plain: bool = True
    """Whether each trial has one reward of 0 or 1, as pass@k needs."""


class Stats:
    """Counts trials."""

    def __init__(self) -> None:
        self._evals: dict[str, _Eval] = defaultdict(_Eval)
        self.n = 0
        """Number of trials."""
        self._errors = self._retries = self._input = self._output = 0

    def add(self, trial: Trial, result: dict[str, Any]) -> None:
        """Count a trial."""
        model = trial.model
        parts = [trial.facts.agent, *([model] if model else []), trial.facts.source]
        found = self._evals["__".join(parts)]
        found.n += 1
        self.n += 1
        self._retries += len(trial.episode.earlier_failures)
        self._input += result["agent_result"]["n_input_tokens"] or 0
        self._output += result["agent_result"]["n_output_tokens"] or 0
        rewards = trial.rewards
        if rewards is not None:
            found.graded += 1
            for name, value in rewards.items():
                found.totals[name].append(value)
                found.rewards[name][str(value)].append(trial.name)
            found.plain &= len(rewards) == 1 and set(rewards.values()) <= {0, 1}
        found.passes[trial.task.id].append(rewards is not None and set(rewards.values()) == {1})
        failure = trial.failure
        if failure is not None:
            self._errors += 1
            found.exceptions[failure.kind].append(trial.name)

    @property
    def attempts(self) -> int:
        """Maximum number of attempts at one task."""
        return max(
            (len(done) for found in self._evals.values() for done in found.passes.values()),
            default=1,
        )

    def plain(self) -> dict[str, Any]:
        """The statistics in Harbor's format."""
        return {
            "n_completed_trials": self.n,
            "n_errored_trials": self._errors,
            "n_running_trials": 0,
            "n_pending_trials": 0,
            "n_cancelled_trials": 0,
            "n_retries": self._retries,
            "evals": {name: _plain(found) for name, found in self._evals.items()},
            "n_input_tokens": self._input or None,
            "n_output_tokens": self._output or None,
        }


def _plain(found: _Eval) -> dict[str, Any]:
    # As Harbor: a trial without a reward counts as 0 in both.
    means = {name: math.fsum(values) / found.n for name, values in sorted(found.totals.items())}
    return {
        "n_trials": found.graded,
        "n_errors": sum(map(len, found.exceptions.values())),
        "metrics": [means] if means else [],
        "pass_at_k": _pass_at(found) if found.plain else {},
        "reward_stats": found.rewards,
        "exception_stats": found.exceptions,
    }


def _pass_at(found: _Eval) -> dict[str, float]:
    least = min(map(len, found.passes.values()))
    doubled = {2**i for i in range(1, least.bit_length())}
    made = {}
    for k in sorted(k for k in doubled | set(range(5, least + 1, 5)) if k <= least):
        each = [pass_at_k(len(done), sum(done), k) or 0.0 for done in found.passes.values()]
        made[str(k)] = math.fsum(each) / len(each)
    return made
