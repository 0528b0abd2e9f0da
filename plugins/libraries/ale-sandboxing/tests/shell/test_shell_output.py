"""Output is capped to head and tail, and a pipe that stays open delays nothing."""

import asyncio
import os

from ale.testing.waiting import until
from ale_sandboxing.shell.capture import Capture
from ale_sandboxing.shell.channel import Lines, Writer
from ale_sandboxing.shell.output import Pump


def test_what_fits_is_whole() -> None:
    capture = Capture(6)
    for piece in (b"ab", b"cdef"):
        capture.add(piece)
    assert (capture.value(), capture.truncated) == (b"abcdef", False)


def test_what_does_not_fit_loses_its_middle() -> None:
    capture = Capture(4)
    for letter in b"abcdefghij":
        capture.add(bytes([letter]))
    assert (capture.value(), capture.truncated) == (b"abij", True)


def test_a_limit_of_zero_keeps_nothing() -> None:
    capture = Capture(0)
    capture.add(b"x")
    assert (capture.value(), capture.truncated) == (b"", True)


async def test_a_pump_that_is_finished_takes_what_is_there_and_drops_the_rest() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    ended: asyncio.Future[Pump] = asyncio.get_running_loop().create_future()
    pump = Pump(reader, 100)
    os.write(writer, b"before")
    capture = pump.finish(ended.set_result)
    assert (capture.value(), pump.open) == (b"before", True)
    os.write(writer, b"after")
    os.close(writer)
    assert await asyncio.wait_for(ended, 60) is pump
    assert capture.value() == b"before"


async def test_a_writer_sends_more_than_a_pipe_holds() -> None:
    reader, descriptor = os.pipe()
    writer = Writer(descriptor)
    data = os.urandom(1 << 20)
    writer.send(data[:100])
    writer.send(data[100:])
    got = b""
    while len(got) < len(data):
        got += await asyncio.to_thread(os.read, reader, 1 << 16)
    assert got == data
    os.close(reader)
    writer.send(b"to nobody")
    writer.close()
    writer.close()
    writer.send(b"after the end")


async def test_lines_arrive_whole_and_the_pipe_is_closed_at_its_end() -> None:
    reader, writer = os.pipe()
    lines: list[bytes] = []
    Lines(reader, lines.append)
    os.write(writer, b"one\ntw")
    await asyncio.sleep(0.05)
    os.write(writer, b"o\nthree")
    os.close(writer)
    await until(lambda: not os.path.exists(f"/proc/self/fd/{reader}"), "the end", 60)  # noqa: PTH110
    assert lines == [b"one", b"two"]
