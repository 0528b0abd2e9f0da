"""For authors of observers: a thread that sends in the background.

The hooks of an observer run on the event loop, so one that waits for a disk or a server delays
every episode. `BackgroundSender` does the waiting in a thread::

    @contextmanager
    def connect() -> Iterator[Callable[[str], None]]:
        client = sdk.connect()
        yield client.send
        client.close()

    sender = BackgroundSender(connect, name="mine")
    sender.start()               # in ale_run_started
    sender.send("a line")        # in the other hooks; returns at once
    sender.close(timeout_s=10)   # in ale_run_finished
"""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Generic, TypeVar

from ale.errors import AleError

__all__ = ["BackgroundSender"]

T = TypeVar("T")


_END: Any = object()
"""Marks the end of the queue."""


class BackgroundSender(Generic[T]):
    """Hands items to a sink, in order, in a thread of its own.

    An error of the sink is raised by the next `send` or by `close`. Let a hook raise it: the run
    reports it once and continues without the observer. The thread is a daemon, so that a sink that
    hangs can't keep the process from ending.

    Args:
        open_sink: entered in the thread; returns the function that sends one item, and closes the
            sink on exit.
        name: for messages.
        capacity: maximum number of waiting items.
    """

    def __init__(
        self,
        open_sink: Callable[[], AbstractContextManager[Callable[[T], None]]],
        *,
        name: str,
        capacity: int = 10_000,
    ) -> None:
        self._open_sink = open_sink
        self._name = name
        self._items: queue.Queue[T] = queue.Queue(capacity)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name=f"ale-{name}", daemon=True)

    def start(self) -> None:
        """Open the sink, in the thread."""
        self._thread.start()

    def send(self, item: T) -> None:
        """Queue an item; returns at once.

        Raises:
            AleError: the queue is full, so the sink must be stuck.
            Exception: raised by the sink.
        """
        if self._error is not None:
            raise self._error
        try:
            self._items.put_nowait(item)
        except queue.Full:
            raise AleError(
                f"{self._name}: {self._items.maxsize} items are waiting; giving up"
            ) from None

    def close(self, timeout_s: float) -> None:
        """Wait until everything is sent and the sink is closed.

        Raises:
            AleError: not closed after `timeout_s` seconds; the thread is abandoned.
            Exception: raised by the sink.
        """
        if self._error is not None:
            raise self._error
        late = AleError(f"{self._name}: not finished after {timeout_s:g} seconds; abandoned")
        deadline = time.monotonic() + timeout_s
        try:
            self._items.put(_END, timeout=timeout_s)
        except queue.Full:
            raise self._error or late from None
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise late

    def _work(self) -> None:
        try:
            with self._open_sink() as send:
                while (item := self._items.get()) is not _END:
                    send(item)
        except Exception as error:  # raised again by the next `send` or `close`
            self._error = error
            with suppress(queue.Empty):
                while True:  # `close` may be waiting for room in a full queue
                    self._items.get_nowait()
