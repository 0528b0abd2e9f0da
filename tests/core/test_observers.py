"""The background sender for observers."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ale.errors import AleError
from ale.observers import BackgroundSender


class Sink:
    """Holds what it gets; waits for `release` first."""

    def __init__(self, *, error: Exception | None = None, waits: bool = False) -> None:
        self.items: list[int] = []
        self.closed = False
        self.release = threading.Event()
        self._error = error
        if not waits:
            self.release.set()

    @contextmanager
    def __call__(self) -> Iterator[Callable[[int], None]]:
        self.release.wait()
        if self._error is not None:
            raise self._error
        yield self.items.append
        self.closed = True


def test_everything_is_sent_in_order_and_the_sink_closed() -> None:
    sink = Sink()
    sender = BackgroundSender(sink, name="x")
    sender.start()
    for item in range(100):
        sender.send(item)
    sender.close(60.0)
    assert sink.items == [*range(100)]
    assert sink.closed


def test_sending_does_not_wait_for_the_sink() -> None:
    sink = Sink(waits=True)
    sender = BackgroundSender(sink, name="x")
    sender.start()
    sender.send(1)
    assert sink.items == []
    sink.release.set()
    sender.close(60.0)
    assert sink.items == [1]


def test_a_full_queue_raises_an_error() -> None:
    sink = Sink(waits=True)
    sender = BackgroundSender(sink, name="x", capacity=3)
    sender.start()
    for item in range(3):
        sender.send(item)
    with pytest.raises(AleError, match="x: 3 items are waiting"):
        sender.send(3)
    sink.release.set()


def test_a_sink_that_hangs_is_abandoned() -> None:
    sink = Sink(waits=True)
    sender = BackgroundSender(sink, name="x")
    sender.start()
    with pytest.raises(AleError, match=r"x: not finished after 0\.1 seconds"):
        sender.close(0.1)
    sink.release.set()


def test_an_error_of_the_sink_is_raised_by_close_without_waiting_for_a_full_queue() -> None:
    sink = Sink(error=ConnectionError("no route"), waits=True)
    sender = BackgroundSender(sink, name="x", capacity=1)
    sender.start()
    sender.send(1)
    sink.release.set()
    with pytest.raises(ConnectionError, match="no route"):
        sender.close(60.0)
