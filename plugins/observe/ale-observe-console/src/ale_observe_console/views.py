"""How progress is shown: plain lines, or a few lines that rich redraws in place."""

import logging
import sys
from collections.abc import Callable
from typing import TextIO, cast

from rich.console import Console as RichConsole
from rich.console import ConsoleDimensions
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.text import Text

from ale_observe_console import layout
from ale_observe_console.progress import Progress
from ale_observe_console.screen import Screen

Write = Callable[[], object]
"""Writes what was composed; may block."""


class PlainView:
    """Whole lines, for logs."""

    writes_steps = True
    """Each finished training step has a line of its own, at once."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def opening(self, progress: Progress, now: float) -> Write:
        """One line: the plan of the run."""
        return self._lines(progress, now, layout.opening(progress))

    def steps(self, progress: Progress, now: float) -> Write:
        """A line for each step that has finished since."""
        return self._lines(progress, now)

    def update(self, progress: Progress, now: float) -> Write:
        """One line: how far it is."""
        return self._lines(progress, now, layout.update(progress, now))

    def closing(self, progress: Progress, now: float) -> Write:
        """One line: the outcome."""
        return self._lines(progress, now, layout.closing(progress, now))

    def release(self) -> None:
        """Nothing is redirected."""

    def _lines(self, progress: Progress, now: float, *lines: str) -> Write:
        steps = (layout.step_line(progress, each, now) for each in progress.take_steps())
        text = "".join(f"{each}\n" for each in (*steps, *progress.take_notices(), *lines))
        return lambda: self._screen.write(text)


class _RichConsole(RichConsole):
    def show_cursor(self, show: bool = True) -> bool:
        return False  # it is never hidden: a killed process must leave a usable terminal

    def on_broken_pipe(self) -> None:
        raise  # the error; rich's own method ends the thread and sends standard output nowhere


class _Stderr(FileProxy):
    """Prints above the live lines. Without an encoding, click would write past it."""

    encoding = "utf-8"
    errors = "backslashreplace"


class TerminalView:
    """Lines that are redrawn in place.

    While they are shown, rich prints above them what others write to `sys.stderr`.
    """

    writes_steps = False

    def __init__(self, screen: Screen, name_running: int) -> None:
        self._screen = screen
        self._name_running = name_running
        self._console = _RichConsole(
            file=cast(TextIO, screen),
            force_terminal=True,
            color_system="standard" if screen.colour else None,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._stderr: _Stderr | None = None
        self._handlers: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []

    def opening(self, progress: Progress, now: float) -> Write:
        """The first lines."""
        update = self.update(progress, now)

        def write() -> None:
            self._redirect()
            update()

        return write

    def steps(self, progress: Progress, now: float) -> Write:
        """As `update`: the last step is one of the lines."""
        return self.update(progress, now)

    def update(self, progress: Progress, now: float) -> Write:
        """The lines as they are now."""
        progress.take_steps()
        columns, rows = self._screen.size()
        self._console.size = ConsoleDimensions(columns, rows)
        notices = progress.take_notices()
        # Fewer rows than the terminal has: rich can't move the cursor up any further.
        lines = layout.frame(progress, now, name_running=self._name_running, width=columns)
        shown = layout.stack(lines[: max(1, rows - 2)])

        def write() -> None:
            for notice in notices:
                self._console.print(Text(notice))
            self._live.update(shown, refresh=True)

        return write

    def closing(self, progress: Progress, now: float) -> Write:
        """One line in place of the others."""
        notices, line = progress.take_notices(), layout.closing(progress, now)

        def write() -> None:
            self.release()
            for text in (*notices, line):
                self._console.print(Text(text), soft_wrap=True)

        return write

    def release(self) -> None:
        """Remove the lines and restore `sys.stderr` and the log handlers."""
        for handler, stream in self._handlers:
            handler.setStream(stream)
        self._handlers = []
        if self._stderr is not None and sys.stderr is self._stderr:
            sys.stderr = cast(TextIO, self._stderr.rich_proxied_file)
        self._live.stop()

    def _redirect(self) -> None:
        original = sys.stderr
        self._live.start()
        sys.stderr = self._stderr = _Stderr(self._console, original)
        # A handler that was made before has the stream itself, which rich does not redirect.
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is original:
                handler.setStream(sys.stderr)
                self._handlers.append((handler, original))


View = PlainView | TerminalView
"""Composes output from the progress; the composed output is written without its lock."""
