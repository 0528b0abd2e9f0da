"""Frames, marks and answers, from a socket that stands for an engine."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ale.errors import SandboxDamagedError, SandboxError, SandboxLostError
from ale_sandboxing.container import worker as workers
from ale_sandboxing.container.pool import WorkerPool
from ale_sandboxing.container.stream import STDERR, STDOUT, Stream, attach
from ale_sandboxing.container.worker import Supervisor, Worker

UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\n\r\n"
HANDSHAKE = b"handshake 0 5 unlimited\n"


def frame(channel: int, data: bytes) -> bytes:
    return bytes([channel, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


class FakeEngine:
    """What the process in the container would read and write."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answer = UPGRADED
        self.reader = asyncio.StreamReader()
        self.writer: asyncio.StreamWriter | None = None

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.reader, self.writer = reader, writer
        writer.write(self.answer)

    def say(self, channel: int, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(frame(channel, data))

    async def attached(self) -> Stream:
        return await attach(self.address, "box")


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[FakeEngine]:
    engine = FakeEngine(f"unix://{tmp_path}/socket")
    server = await asyncio.start_unix_server(engine.take, tmp_path / "socket")
    yield engine
    server.close()
    if engine.writer is not None:
        engine.writer.close()


async def no_code() -> int | None:
    return None


async def test_output_is_what_lies_between_the_marks_wherever_pieces_end(
    engine: FakeEngine,
) -> None:
    worker = Worker(await engine.attached(), no_code)
    job = worker.expect(100)
    whole = b"%b s\nout%bput\n%b e 3 /proc/1 /proc/7\nlate" % (job.mark, job.mark[:-1], job.mark)
    for at in range(0, len(whole), 5):
        engine.say(STDOUT, whole[at : at + 5])
        await asyncio.sleep(0)
    assert not job.ended.done()
    engine.say(STDERR, b"err\n%b e\n" % job.mark)
    assert await job.ended == 3
    assert job.output[STDOUT].value() == b"out" + job.mark[:-1] + b"put\n"
    assert job.output[STDERR].value() == b"err\n"
    assert job.processes == {b"/proc/1", b"/proc/7"}
    worker.close()


async def test_a_job_of_a_lost_stream_has_no_exit_code(engine: FakeEngine) -> None:
    worker = Worker(await engine.attached(), no_code)
    job = worker.expect(100)
    assert engine.writer is not None
    engine.writer.transport.abort()
    assert await job.ended is None
    assert await job.begun is False


async def test_a_supervisor_that_was_killed_is_asked_again(engine: FakeEngine) -> None:
    supervisor = Supervisor(await engine.attached())
    engine.say(STDOUT, HANDSHAKE)
    assert (await supervisor.handshake).gid == 5
    asked = asyncio.ensure_future(supervisor.ask(b"kill_tagged 5\n"))
    await engine.reader.readuntil(b"kill_tagged 5\n")
    engine.say(STDOUT, b"again\n" + HANDSHAKE)
    await engine.reader.readuntil(b"kill_tagged 5\n")
    engine.say(STDOUT, b"k 2 0\n")
    assert await asked == (2, 0)
    supervisor.close()


async def test_a_supervisor_that_does_not_start_again_was_stopped_from_inside(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "ANSWER_S", 0.05)
    supervisor = Supervisor(await engine.attached())
    engine.say(STDOUT, HANDSHAKE)
    with pytest.raises(SandboxLostError, match="did not answer in"):
        await supervisor.ask(b"answer\n")
    monkeypatch.setattr(workers, "ANSWER_S", 20.0)
    asked = asyncio.ensure_future(supervisor.ask(b"answer\n"))
    await asyncio.sleep(0)
    engine.say(STDOUT, b"again\n" * 60)
    for question in (asked, supervisor.ask(b"answer\n")):
        with pytest.raises(SandboxDamagedError, match="keeps the supervisor from starting"):
            await question
    supervisor.close()


async def test_what_an_engine_says_in_place_of_a_stream_is_the_error(engine: FakeEngine) -> None:
    body = b'{"message":"container box is not running"}'
    engine.answer = b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with pytest.raises(SandboxError, match="is not running"):
        await engine.attached()


async def test_an_address_without_an_engine_is_named(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=f"no engine answers at unix://{tmp_path}/none"):
        await attach(f"unix://{tmp_path}/none", "box")


async def test_a_worker_that_is_ended_while_it_starts_is_started_again(
    engine: FakeEngine,
) -> None:
    """As where an agent is done before the first worker answers, and all processes are ended."""
    started: asyncio.Queue[Stream] = asyncio.Queue()

    async def start() -> Worker:
        stream = await engine.attached()
        started.put_nowait(stream)
        return Worker(stream, no_code)

    async def mark() -> bytes:
        await started.get()
        read = b""
        while not (found := re.search(rb"end ([0-9a-f]{32}) 0\n", read)):
            read += await engine.reader.readuntil(b"\n")
        return found[1]

    pool = WorkerPool(start, asyncio.Lock())
    pool.grow()
    await mark()
    first = engine.writer
    pool.drop()
    waiting = asyncio.ensure_future(pool.acquire())
    asked = await asyncio.wait_for(mark(), 60)
    engine.say(STDOUT, b"%b e 0\n" % asked)
    engine.say(STDERR, b"%b e\n" % asked)
    pool.release(await waiting)
    pool.close("done")
    assert first is not None
    first.close()
