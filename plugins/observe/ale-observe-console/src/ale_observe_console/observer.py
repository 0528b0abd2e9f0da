"""The observer: hooks that only count, and a thread that draws."""

import sys
import threading
from collections.abc import Callable

from ale.plugin import BuildContext, hookimpl
from ale.types import (
    EpisodeFinished,
    EpisodeStage,
    EvaluationFinished,
    RunFinished,
    RunStarted,
    RunSteered,
    StepFinished,
)
from ale_observe_console.options import ConsoleOptions
from ale_observe_console.progress import Progress
from ale_observe_console.screen import Screen
from ale_observe_console.views import PlainView, TerminalView, View, Write

REFRESH_S = 0.1
"""Shortest time between two redraws of a terminal."""
QUIET_INTERVAL_S = 30.0
"""Time between two lines in a log."""
IDLE_S = 1.0
"""Longest time between two redraws: the times on the screen change every second."""
PATIENCE_S = 1.0
"""How long the end of the run waits for the last line to be written."""


class Console:
    """Counts in the hooks, which return at once; draws in a thread of its own.

    The thread also draws while nothing finishes, and a terminal that does not read blocks only
    this thread.

    Args:
        view: what to draw.
        least_s: minimum seconds between two drawings.
        idle_s: maximum seconds between two drawings.
    """

    def __init__(
        self,
        view: View,
        *,
        least_s: float,
        idle_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._view = view
        self._least_s = least_s
        self._idle_s = idle_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._due = threading.Event()
        """Something is to be written at once: the end, or a step in a log."""
        self._error: Exception | None = None
        self._progress: Progress | None = None
        self._thread = threading.Thread(target=self._draw, name="ale-console", daemon=True)

    @hookimpl
    def ale_run_started(self, event: RunStarted) -> None:
        """Start to draw."""
        self._progress = Progress.start(event, self._monotonic())
        self._thread.start()

    @hookimpl
    def ale_episode_stage(self, event: EpisodeStage) -> None:
        """Note the stage of the episode."""
        self._change(lambda progress: progress.enter(event, self._monotonic()))

    @hookimpl
    def ale_episode_finished(self, event: EpisodeFinished) -> None:
        """Count it."""
        self._change(lambda progress: progress.finish(event, self._monotonic()))

    @hookimpl
    def ale_step_finished(self, event: StepFinished) -> None:
        """Keep the report for display."""
        self._change(lambda progress: progress.finish_step(event, self._monotonic()))
        if self._view.writes_steps:
            self._due.set()

    @hookimpl
    def ale_evaluation_finished(self, event: EvaluationFinished) -> None:
        """Keep the result for display."""
        self._change(lambda progress: progress.finish_evaluation(event))

    @hookimpl
    def ale_run_steered(self, event: RunSteered) -> None:
        """Note whether it is paused."""
        self._change(lambda progress: progress.steer(event, self._monotonic()))

    @hookimpl
    def ale_run_finished(self, event: RunFinished) -> None:
        """Write the outcome."""

        def finish(progress: Progress) -> None:
            progress.finished = event

        self._change(finish)
        self._ended.set()
        self._due.set()
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)

    def _change(self, change: Callable[[Progress], None]) -> None:
        """Apply `change`; raises the error of the thread, so that the run reports it."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._progress is not None:
            with self._lock:
                change(self._progress)
            self._changed.set()

    def _write(self, compose: Callable[[Progress, float], Write]) -> None:
        assert self._progress is not None
        with self._lock:
            write = compose(self._progress, self._monotonic())
        write()

    def _draw_once(self) -> None:
        """Wait until something is due, or for the next update."""
        if self._due.wait(self._least_s):
            self._due.clear()
            if not self._ended.is_set():
                self._write(self._view.steps)
            return
        self._changed.wait(self._idle_s - self._least_s)
        self._changed.clear()
        if not self._ended.is_set():
            self._write(self._view.update)

    def _draw(self) -> None:
        try:
            try:
                self._write(self._view.opening)
                while not self._ended.is_set():
                    self._draw_once()
                self._write(self._view.closing)
            finally:
                self._view.release()
        except Exception as error:  # raised to the run by the next hook
            self._error = error


def make(options: ConsoleOptions, context: BuildContext) -> object:
    """The observer for the current standard error."""
    if options.mode == "off" or sys.stderr is None:  # None: it was closed (2>&-)
        return object()  # which implements no hook
    screen = Screen(sys.stderr, context.environ)
    if options.mode == "terminal" or (options.mode == "auto" and screen.isatty()):
        return Console(
            TerminalView(screen, options.name_running),
            least_s=REFRESH_S,
            idle_s=max(IDLE_S, REFRESH_S),
            monotonic=context.monotonic,
        )
    return Console(
        PlainView(screen),
        least_s=QUIET_INTERVAL_S,
        idle_s=QUIET_INTERVAL_S,
        monotonic=context.monotonic,
    )
