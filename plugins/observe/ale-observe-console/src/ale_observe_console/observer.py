"""The observer: hooks that only count, and a thread that draws."""

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from ale.plugin import hookimpl
from ale.types import (
    EpisodeFinished,
    EpisodeStage,
    EvaluationFinished,
    RunFinished,
    RunStarted,
    StepFinished,
)
from ale_observe_console import layout
from ale_observe_console.plugin import ConsoleOptions
from ale_observe_console.progress import Progress
from ale_observe_console.screen import Screen, erase, place

IDLE_S = 1.0
"""Times on the screen move by the second while nothing else does."""
PATIENCE_S = 1.0
"""How long the end of the run waits for the last line to be written."""


class View(Protocol):
    """What is written at the start, on the way and at the end. Called by the thread alone."""

    def opening(self, progress: Progress, now: float) -> str:
        """First."""
        ...

    def update(self, progress: Progress, now: float) -> str:
        """On the way; empty for nothing new."""
        ...

    def closing(self, progress: Progress, now: float) -> str:
        """Last."""
        ...


class PlainView:
    """Whole lines, for logs."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def opening(self, progress: Progress, now: float) -> str:
        """What is going to be run."""
        return layout.opening(progress) + "\n"

    def update(self, progress: Progress, now: float) -> str:
        """How far it is."""
        return layout.update(progress, now, self._screen.style()) + "\n"

    def closing(self, progress: Progress, now: float) -> str:
        """How it ended."""
        return layout.closing(progress, now) + "\n"


class TerminalView:
    """A block of lines that is redrawn in place."""

    def __init__(self, screen: Screen, name_running: int) -> None:
        self._screen = screen
        self._name_running = name_running
        self._drawn = ""

    def opening(self, progress: Progress, now: float) -> str:
        """The block."""
        return self.update(progress, now)

    def update(self, progress: Progress, now: float) -> str:
        """The block, unless it would look the same."""
        lines = layout.frame(
            progress, now, name_running=self._name_running, style=self._screen.style()
        )
        rows = self._screen.size()[1]
        drawn = place(lines[: max(1, rows - 2)])
        if drawn == self._drawn:
            return ""
        self._drawn = drawn
        return drawn

    def closing(self, progress: Progress, now: float) -> str:
        """One line in the place of the block."""
        return f"{erase()}{layout.closing(progress, now)}\n"


class Console:
    """Counts in the hooks, which return at once; draws in a thread of its own.

    The thread draws while nothing finishes too, and a terminal that does not read holds up
    nothing but this thread.

    Args:
        view: what to write.
        write: where to; may wait.
        least_s: seconds between two drawings at least.
        idle_s: seconds between two drawings at most.
    """

    def __init__(
        self,
        view: View,
        write: Callable[[str], None],
        *,
        least_s: float,
        idle_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._view = view
        self._write = write
        self._least_s = least_s
        self._idle_s = idle_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._over = threading.Event()
        self._error: Exception | None = None
        self._progress: Progress | None = None
        self._thread = threading.Thread(target=self._draw, name="ale-console", daemon=True)

    @hookimpl
    def ale_run_started(self, event: RunStarted) -> None:
        """Begin to draw."""
        self._progress = Progress.start(event, self._monotonic())
        self._thread.start()

    @hookimpl
    def ale_episode_stage(self, event: EpisodeStage) -> None:
        """Note where the episode is."""
        self._change(lambda progress: progress.enter(event, self._monotonic()))

    @hookimpl
    def ale_episode_finished(self, event: EpisodeFinished) -> None:
        """Count it."""
        self._change(lambda progress: progress.finish(event, self._monotonic()))

    @hookimpl
    def ale_step_finished(self, event: StepFinished) -> None:
        """Keep the report for display."""
        self._change(lambda progress: progress.learn(event))

    @hookimpl
    def ale_evaluation_finished(self, event: EvaluationFinished) -> None:
        """Keep the result for display."""
        self._change(lambda progress: progress.measure(event))

    @hookimpl
    def ale_run_finished(self, event: RunFinished) -> None:
        """Leave one line behind."""

        def finish(progress: Progress) -> None:
            progress.finished = event

        self._change(finish)
        self._over.set()
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)

    def _change(self, change: Callable[[Progress], None]) -> None:
        """Apply `change`; raises what the thread has failed with, so that the run reports it."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._progress is not None:
            with self._lock:
                change(self._progress)
            self._news.set()

    def _say(self, say: Callable[[Progress, float], str]) -> None:
        assert self._progress is not None
        with self._lock:
            text = say(self._progress, self._monotonic())
        if text:
            self._write(text)

    def _draw(self) -> None:
        try:
            self._say(self._view.opening)
            while not self._over.wait(self._least_s):
                self._news.wait(self._idle_s - self._least_s)
                self._news.clear()
                if not self._over.is_set():
                    self._say(self._view.update)
            self._say(self._view.closing)
        except Exception as error:  # handed to the event loop by the next hook
            self._error = error


class Off:
    """Answers no hook."""


def make(
    options: ConsoleOptions, *, environ: Mapping[str, str], monotonic: Callable[[], float]
) -> object:
    """The observer for standard error as it is now."""
    if options.mode == "off" or sys.stderr is None:  # None: it was closed (2>&-)
        return Off()
    screen = Screen(sys.stderr, environ)
    if options.mode == "terminal" or (options.mode == "auto" and screen.is_terminal):
        return Console(
            TerminalView(screen, options.name_running),
            screen.write,
            least_s=options.refresh_s,
            idle_s=max(IDLE_S, options.refresh_s),
            monotonic=monotonic,
        )
    return Console(
        PlainView(screen),
        screen.write,
        least_s=options.quiet_interval_s,
        idle_s=options.quiet_interval_s,
        monotonic=monotonic,
    )
