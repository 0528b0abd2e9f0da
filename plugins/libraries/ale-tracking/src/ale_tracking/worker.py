"""A writer thread, so that hooks return at once even if the tracker is slow."""

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Generic, TypeVar

from ale.errors import AleError

T = TypeVar("T")
Write = Callable[[T], None]


class _End:
    """Marks the end of the queue."""


_END: Final = _End()


class Worker(Generic[T]):
    """Hands items to a sink, in order, in a thread of its own.

    The thread is a daemon: a sink that hangs can't keep the process from ending.

    Args:
        open_sink: entered in the thread; returns the function that writes one item, and closes the
            tracker on exit.
        name: for messages.
        capacity: maximum number of waiting items.
    """

    def __init__(
        self,
        open_sink: Callable[[], AbstractContextManager[Write[T]]],
        *,
        name: str,
        capacity: int = 10_000,
    ) -> None:
        self._open_sink = open_sink
        self._name = name
        self._items: queue.Queue[T | _End] = queue.Queue(capacity)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name=f"ale-{name}", daemon=True)

    def start(self) -> None:
        """Open the sink, in the thread."""
        self._thread.start()

    def put(self, item: T) -> None:
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
        """Wait until everything is written and the sink is closed.

        Raises:
            AleError: not closed after `timeout_s` seconds; the thread is abandoned.
            Exception: raised by the sink.
        """
        late = AleError(f"{self._name}: not finished after {timeout_s:g} seconds; abandoned")
        try:
            self._items.put(_END, timeout=timeout_s)
        except queue.Full:
            raise late from None
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise late

    def _work(self) -> None:
        try:
            with self._open_sink() as write:
                while not isinstance(item := self._items.get(), _End):
                    write(item)
        except Exception as error:  # raised again by the next `put` or `close`
            self._error = error
