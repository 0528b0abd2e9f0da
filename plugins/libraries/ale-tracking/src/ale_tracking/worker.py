"""A thread that writes, so that a hook returns at once however slow the tracker is."""

import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Generic, TypeVar

from ale.errors import AleError

T = TypeVar("T")
Write = Callable[[T], None]


class _End:
    """Nothing follows."""


_END: Final = _End()


class Worker(Generic[T]):
    """Hands items to a sink, in order, in a thread of its own.

    The thread is a daemon: a sink that hangs can't keep the process from ending.

    Args:
        open_sink: entered in the thread; gives the function that writes one item, and on exit
            finishes what is to be finished.
        name: for messages.
        capacity: how many items may wait.
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
        """Leave an item to be written; returns at once.

        Raises:
            AleError: so many items wait that the sink must be stuck.
            Exception: what the sink has raised.
        """
        if self._error is not None:
            raise self._error
        try:
            self._items.put_nowait(item)
        except queue.Full:
            raise AleError(
                f"{self._name}: {self._items.maxsize} items wait to be written; giving up"
            ) from None

    def close(self, timeout_s: float) -> None:
        """Wait until all is written and the sink has finished.

        Raises:
            AleError: it has not after `timeout_s` seconds; it is left to itself.
            Exception: what the sink has raised.
        """
        late = AleError(f"{self._name}: not finished after {timeout_s:g} seconds; left to itself")
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
