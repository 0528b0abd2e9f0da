"""An engine at the end of a slow connection, which may break."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ale.errors import SandboxError
from ale.testing.waiting import until
from ale.types import SandboxSpec
from ale_sandboxing.container.backend import ContainerBackend
from ale_sandboxing.container.sandbox import ContainerSandbox
from ale_sandboxing.container_testing.tools import PATIENCE_S, Make, out

_PIECE = 1 << 16


class Relay:
    """Passes on to an engine's socket what is sent to another one, after `delay_s` each way."""

    def __init__(self, engine: Path, delay_s: float) -> None:
        self._engine = engine
        self._delay_s = delay_s
        self._open: set[asyncio.StreamWriter] = set()
        self.sent = 0
        """Messages to the engine."""

    @contextlib.asynccontextmanager
    async def serve(self, place: Path) -> AsyncIterator[str]:
        """Its address."""
        server = await asyncio.start_unix_server(self._take, place)
        try:
            yield f"unix://{place}"
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """Break every connection that is open now."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        engine_reader, engine = await asyncio.open_unix_connection(self._engine)
        ends = (writer, engine)
        self._open.update(ends)
        await asyncio.gather(
            self._pass(reader, engine, counted=1),
            self._pass(engine_reader, writer, counted=0),
            return_exceptions=True,
        )
        for end in ends:
            self._open.discard(end)
            end.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: int
    ) -> None:
        loop = asyncio.get_running_loop()
        while piece := await reader.read(_PIECE):
            self.sent += counted
            loop.call_later(self._delay_s, self._write, writer, piece)
        await asyncio.sleep(2 * self._delay_s)
        with contextlib.suppress(OSError):
            writer.write_eof()

    @staticmethod
    def _write(writer: asyncio.StreamWriter, piece: bytes) -> None:
        if not writer.is_closing():
            writer.write(piece)


@contextlib.asynccontextmanager
async def distant(
    make: Make, folder: Path, delay_s: float
) -> AsyncIterator[tuple[ContainerBackend, Relay]]:
    """A backend that reaches its engine through a relay."""
    relay = Relay(Path(make()._engine.url.removeprefix("unix://")), delay_s)
    async with relay.serve(folder / "relay.sock") as address:
        # The backend's own requests would block the relay: it is made in a thread.
        yield await asyncio.to_thread(make, host=address), relay


async def begun(box: ContainerSandbox, count: int) -> None:
    """Wait until so many commands run."""

    def are_running() -> bool:
        return sum(one.job.begun.done() for one in box._commands._running.values()) == count

    await until(are_running, f"the start of {count} commands")


class DistanceProbes:
    """Needs one more fixture, ``tmp_path``."""

    async def test_each_command_takes_one_round_trip(self, make: Make, tmp_path: Path) -> None:
        delay_s = 0.05
        async with distant(make, tmp_path, delay_s) as (backend, relay):
            async with backend.open(SandboxSpec()) as box:
                session = await box.session()
                for run in (session.run, box.exec, session.run, session.run, box.exec):
                    # Each looks once at processes that it sees for the first time.
                    await run("true")
                commands = box._commands
                await until(lambda: not commands._tasks, "the end of that")
                for run in (session.run, box.exec):
                    messages, times = relay.sent, []
                    for code in range(5):
                        started = time.perf_counter()
                        assert (await run(f"(exit {code})")).exit_code == code
                        times.append(time.perf_counter() - started)
                    assert relay.sent - messages == 5, "a command waits for more than its end"
                    assert min(times) < 2 * delay_s * 1.2
                assert (await box.exec("sleep 60", timeout_s=0.2)).timed_out
                output = await box.exec("seq 100000", max_output_bytes=100)
                assert (output.truncated, output.stdout[-7:]) == (True, b"100000\n")
            await backend.aclose()

    async def test_limits_timeouts_and_kills_hold_at_a_distance(
        self, make: Make, tmp_path: Path
    ) -> None:
        word = f"86400.{secrets.randbelow(10**9)}"
        async with distant(make, tmp_path, 0.025) as (backend, _):
            async with backend.open(SandboxSpec()) as box:
                assert (await box.exec("cat; exit 5", stdin=b"in")).exit_code == 5
                assert (await box.exec("kill -9 $$")).exit_code == 137
                session = await box.session()
                flood = await session.run("seq 100000; false", max_output_bytes=100)
                assert (flood.exit_code, flood.truncated) == (1, True)
                assert flood.stdout.endswith(b"100000\n")
                late = await session.run(f"sleep {word} & sleep {word}", timeout_s=0.2)
                assert (late.timed_out, late.exit_code, session.closed) == (True, 137, True)
                running = asyncio.ensure_future(box.exec(f"sleep {word} & sleep {word}"))
                await begun(box, 1)
                running.cancel()
                await asyncio.wait([running], timeout=PATIENCE_S)
                assert running.cancelled()
                assert (
                    await out(box, f"cat /proc/[0-9]*/cmdline | grep -c {word[1:]} || true") < "2"
                )
                await box.exec(f"sleep {word} >/dev/null 2>&1 &")
                assert await box.end_processes() >= 1
                assert (await box.exec("echo on")).stdout == b"on\n"
            await backend.aclose()

    async def test_a_broken_connection_is_named_and_ends_nothing_else(
        self, make: Make, tmp_path: Path
    ) -> None:
        near = make()
        async with near.open(SandboxSpec()) as other, distant(make, tmp_path, 0.0) as (far, relay):
            async with far.open(SandboxSpec()) as box:
                session = await box.session()
                running = [
                    asyncio.ensure_future(box.exec("sleep 60")),
                    asyncio.ensure_future(session.run("sleep 60")),
                ]
                await begun(box, 2)  # the session's shell is one
                relay.cut()
                for error in await asyncio.gather(*running, return_exceptions=True):
                    assert isinstance(error, SandboxError), error
                    assert "connection" in str(error), error
                async with far.open(SandboxSpec()) as fresh:
                    assert (await fresh.exec("echo new")).stdout == b"new\n"
                assert (await other.exec("echo on")).stdout == b"on\n"
            await far.aclose()
            name = f"ale-{box.id}"
            engine = near._engine
            await until(
                lambda: (
                    name not in {found.labels["ale.id"] for found in engine.containers("ale.id")}
                ),
                "the end of the container",
            )
        await near.aclose()

    async def test_one_broken_stream_breaks_one_command(self, make: Make, tmp_path: Path) -> None:
        async with distant(make, tmp_path, 0.0) as (backend, _):
            async with backend.open(SandboxSpec()) as box:
                running = asyncio.ensure_future(box.exec("sleep 60"))
                await begun(box, 1)
                (command,) = box._commands._running.values()
                transport = command.worker._stream._transport
                assert transport is not None
                transport.abort()
                with pytest.raises(SandboxError, match="connection"):
                    await asyncio.wait_for(running, PATIENCE_S)
                assert (await box.exec("echo on")).stdout == b"on\n"
            await backend.aclose()
