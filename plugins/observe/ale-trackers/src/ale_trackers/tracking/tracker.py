"""The observer: events in, points out."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from ale.observers import BackgroundSender
from ale.plugin import hookimpl
from ale.text import sampling_name
from ale.types import EpisodeFinished, EvaluationFinished, RunFinished, RunStarted, StepFinished
from ale_trackers.tracking.metrics import Means, Point, episode_metrics

OpenSink = Callable[[RunStarted], AbstractContextManager[Callable[[Point], None]]]
"""Opens the tracker's own run. Called once, in a thread; may be slow."""


class Tracker:
    """Sends the metrics of every episode and of every training step to one tracker.

    Errors of the tracker are raised by the next hook; the run reports them and continues without.

    Args:
        open_sink: the tracker.
        name: for messages.
        window: episodes in a moving mean.
        finish_timeout_s: how long the end of the run waits for pending writes.
    """

    def __init__(
        self, open_sink: OpenSink, *, name: str, window: int, finish_timeout_s: float
    ) -> None:
        self._open_sink = open_sink
        self._name = name
        self._means = Means(window)
        self._finish_timeout_s = finish_timeout_s
        self._n_done = 0
        self._sender: BackgroundSender[Point] | None = None

    @hookimpl
    def ale_run_started(self, event: RunStarted) -> None:
        """Open the tracker in the background."""
        self._n_done = event.n_done
        self._sender = BackgroundSender(lambda: self._open_sink(event), name=self._name)
        self._sender.start()

    @hookimpl
    def ale_episode_finished(self, event: EpisodeFinished) -> None:
        """Send the metrics of the episode."""
        self._n_done += 1
        if event.episode.split == "evaluation":
            return  # sent as totals when the evaluation is finished
        metrics = episode_metrics(event.episode)
        values = {**metrics, **self._means.add(metrics)}
        self._send(
            Point(
                axis="episode",
                index=self._n_done,
                values=values,
                at=event.at,
                episode=event.episode,
            )
        )

    @hookimpl
    def ale_step_finished(self, event: StepFinished) -> None:
        """Send the trainer's metrics, as ``train/...``."""
        report = event.report
        values = {f"train/{name}": value for name, value in report.metrics.items()}
        values["train/policy_version"] = float(report.policy_version)
        self._send(Point(axis="step", index=report.step, values=values, at=event.at))

    @hookimpl
    def ale_evaluation_finished(self, event: EvaluationFinished) -> None:
        """Send the result, as ``evaluation/...``; ``evaluation/greedy/...`` at temperature 0."""
        how = "" if event.temperature is None else f"{sampling_name(event.temperature)}/"
        values = {"episodes": float(event.n_graded)}
        if event.n_graded:
            values["success"] = event.n_succeeded / event.n_graded
        if event.mean_reward is not None:
            values["reward"] = event.mean_reward
        values = {f"evaluation/{how}{name}": value for name, value in values.items()}
        self._send(Point(axis="step", index=event.step, values=values, at=event.at))

    @hookimpl
    def ale_run_finished(self, event: RunFinished) -> None:
        """Wait briefly until everything is written."""
        if self._sender is not None:
            self._sender.close(self._finish_timeout_s)

    def _send(self, point: Point) -> None:
        if self._sender is not None:
            self._sender.send(point)
