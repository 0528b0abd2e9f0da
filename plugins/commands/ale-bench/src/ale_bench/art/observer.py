"""The output of ``ale art train`` while it runs: a header, a line per step, and totals."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ale.plugin import hookimpl
from ale.runs import SUCCESS
from ale.types import EpisodeFinished, RunFinished, RunStarted, StepFinished
from ale_bench.art.config import training_note, type_of

WIDTH = 60


class ArtObserver:
    """Prints to standard error."""

    def __init__(self) -> None:
        self._since = 0.0
        self._steps = 0
        self._timed_out = self._damaged = 0
        self._unfinished: dict[int, list[float | None]] = {}
        """Rewards of the episodes of steps that have not finished; None for a broken one."""

    @hookimpl
    def ale_run_started(self, event: RunStarted) -> None:
        """The header."""
        self._since = event.at
        run, config = event.config.get("run", {}), event.config
        _print(
            f"Loaded {_problems(Path(event.directory))} problems",
            "",
            f"ART Training (job: {event.run_id})",
            "=" * WIDTH,
            f"Model: {(config.get('llm') or {}).get('model')}",
            f"Problems: {_problems(Path(event.directory))}",
            f"Steps: {run.get('steps')}",
            f"Batch size: {run.get('tasks_per_step')}",
            f"Training: {training_note(config)}",
            "=" * WIDTH,
            "",
            f"W&B run: {_wandb(event)}",
            "",
            "Starting training loop...",
            "-" * WIDTH,
        )

    @hookimpl
    def ale_episode_finished(self, event: EpisodeFinished) -> None:
        """Count what ended by a limit of the grading, or by what the agent did to its sandbox."""
        episode = event.episode
        if episode.split == "evaluation":
            return
        self._unfinished.setdefault(episode.step, []).append(episode.reward)
        if episode.reward is not None:
            self._timed_out += episode.timed_out
            self._damaged += episode.damaged is not None

    @hookimpl
    def ale_step_finished(self, event: StepFinished) -> None:
        """One line about the step's graded episodes; broken ones have no reward."""
        report = event.report
        _print(
            f"  Step {report.step}: {_results(report.metrics)}, time={event.at - self._since:.1f}s"
        )
        self._since, self._steps = event.at, report.step + 1
        self._unfinished.pop(report.step, None)

    @hookimpl
    def ale_run_finished(self, event: RunFinished) -> None:
        """A line about each step that a signal or an error has left unfinished, and the totals."""
        suffix = "" if event.outcome == "completed" else ", unfinished"
        for step, rewards in sorted(self._unfinished.items()):
            seconds = f"time={event.at - self._since:.1f}s"
            _print(f"  Step {step}: {_results(_metrics(rewards))}, {seconds}{suffix}")
        rate = f" ({event.n_succeeded / event.n_graded:.1%})" if event.n_graded else ""
        counts = {
            "Broken, without a reward": event.n_broken,
            "Graded, but out of time": self._timed_out,
            "Graded, with a sandbox that the agent damaged": self._damaged,
        }
        _print(
            "-" * WIDTH,
            "",
            "Training complete!" if event.outcome == "completed" else f"Training {event.outcome}",
            f"  Total trajectories: {event.n_graded}",
            f"  Successful: {event.n_succeeded}{rate}",
            *(f"  {name}: {n}" for name, n in counts.items() if n),
            f"  Steps completed: {self._steps}",
            "",
        )


def _print(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr, flush=True)


def _problems(directory: Path) -> str:
    """How many tasks the run has stored."""
    file = directory / "tasks.jsonl"
    if not file.exists():
        return "unknown"
    with file.open("rb") as lines:
        return str(sum(1 for _ in lines))


def _metrics(rewards: Sequence[float | None]) -> dict[str, float]:
    """The metrics of these episodes, as the report of their step has them."""
    graded = [reward for reward in rewards if reward is not None]
    metrics: dict[str, float] = {"episodes": len(graded), "broken": len(rewards) - len(graded)}
    if graded:
        metrics["mean_reward"] = sum(graded) / len(graded)
        metrics["success"] = sum(reward == SUCCESS for reward in graded) / len(graded)
    return metrics


def _results(metrics: Mapping[str, float]) -> str:
    graded = round(metrics.get("episodes", 0))
    broken = round(metrics.get("broken", 0))
    suffix = f", broken={broken}" if broken else ""
    if "mean_reward" not in metrics:
        return f"reward=none, success=none (0/{graded}){suffix}"
    share = metrics["success"]
    return (
        f"reward={metrics['mean_reward']:.3f}, "
        f"success={share:.1%} ({round(share * graded)}/{graded}){suffix}"
    )


def _wandb(event: RunStarted) -> str:
    found: list[Mapping[str, Any]] = [
        one for one in event.config.get("observers", ()) if type_of(one) == "wandb"
    ]
    if not found:
        return "none"
    options = found[0]
    where = f" in {event.directory}/wandb" if options.get("mode") == "offline" else ""
    return f"{event.run_id} of project {options.get('project')}, {options.get('mode')}{where}"
