"""What a proxy writes down of a hostile client."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from ale.types import Egress
from ale_sandboxing.container.egress import EgressProxy, Limits
from ale_sandboxing.container.hosts import AllowedHosts
from ale_sandboxing.container.ledger import MOST, Ledger

HOME = "127.0.0.1"


class Asked:
    """A proxy on this machine's loopback, and a client."""

    def __init__(self, *hosts: str) -> None:
        listener = socket.create_server((HOME, 0))
        self.port: int = listener.getsockname()[1]
        self.gate = EgressProxy(AllowedHosts(hosts), Limits(head_s=5, idle_s=5, dial_s=5))
        self.gate.serve_on(listener)

    async def say(self, head: str, *more: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(HOME, self.port)
        writer.write(head.encode() + b"\r\n\r\n")
        answer = await reader.readuntil(b"\r\n\r\n") if more else b""
        for piece in more:
            writer.write(piece)
        async with asyncio.timeout(30):
            answer += await reader.read()
        writer.close()
        return answer

    @property
    def rows(self) -> tuple[Egress, ...]:
        return self.gate.ledger.so_far().rows


@contextlib.asynccontextmanager
async def asking(*hosts: str) -> AsyncIterator[Asked]:
    made = Asked(*hosts)
    try:
        yield made
    finally:
        made.gate.close()
        await asyncio.sleep(0.05)  # until its listener is closed


@pytest.fixture
async def server() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(b"x" * 1000)
        writer.close()

    made = await asyncio.start_server(serve, HOME, 0)
    async with made:
        yield int(made.sockets[0].getsockname()[1])


async def test_names_addresses_and_bytes_of_what_passed(server: int) -> None:
    async with asking(HOME) as asked:
        for _ in range(2):
            await asked.say(f"GET http://{HOME}:{server}/secret HTTP/1.1")
        await asked.say(f"CONNECT {HOME}:{server} HTTP/1.1", b"y" * 300)
        (row,) = asked.rows
        sent = len(f"GET /secret HTTP/1.1\r\nHost: {HOME}:{server}\r\nConnection: close\r\n\r\n")
        assert row == Egress(
            host=HOME,
            port=server,
            address=HOME,
            connections=3,
            sent=2 * sent + 300,
            received=3000,
        )


async def test_what_was_refused_and_why(server: int) -> None:
    async with asking(HOME, "closed.invalid") as asked:
        await asked.say("CONNECT evil.example:443 HTTP/1.1")
        await asked.say("no request at all")
        await asked.say(f"GET http://{HOME}:25/ HTTP/1.1")
        await asked.say("GET http://closed.invalid/ HTTP/1.1")
        told = [(row.host, row.port, row.outcome, row.sent, row.received) for row in asked.rows]
        assert told == [
            ("evil.example", 443, "refused", 0, 0),
            ("", 0, "refused", 0, 0),
            (HOME, 25, "refused", 0, 0),
            ("closed.invalid", 80, "unreached", 0, 0),
        ]
        assert asked.rows[0].why == "evil.example is not one of the task's allowed hosts"


async def test_a_tunnel_that_carries_something_else_is_refused_and_says_where_it_led(
    server: int,
) -> None:
    async with asking("localhost", HOME) as asked:
        await asked.say(f"CONNECT localhost:{server} HTTP/1.1", b"SSH-2.0-x\r\n")
        (row,) = asked.rows
        assert (row.host, row.address, row.outcome, row.sent) == ("localhost", HOME, "refused", 0)
        assert "carries TLS alone" in row.why


def test_refused_names_drive_out_nothing_that_passed() -> None:
    ledger = Ledger()
    for number in range(5 * MOST):
        ledger.add(f"n{number}." + "x" * 5000, 443, "refused", why="y" * 5000)
    ledger.add("listed", 443, "passed", address="192.0.2.1").sent += 7
    rows = ledger.so_far().rows
    assert len(rows) == MOST + 2
    assert rows[-2] == Egress(host="listed", port=443, address="192.0.2.1", connections=1, sent=7)
    assert (rows[-1].host, rows[-1].connections) == ("", 4 * MOST)
    assert max(len(row.host) for row in rows) <= 253
    assert max(len(row.why) for row in rows) <= 200


def test_names_that_passed_are_bounded_and_their_bytes_counted() -> None:
    ledger = Ledger()
    for number in range(MOST + 10):
        ledger.add(f"n{number}.example", 443, "passed").received += 5
    rows = ledger.so_far().rows
    assert len(rows) == MOST + 1
    assert (rows[-1].host, rows[-1].connections, rows[-1].received) == ("", 10, 50)


def test_what_went_another_way_is_said() -> None:
    assert Ledger().so_far().unrecorded == ""
    assert Ledger().so_far("the rest").unrecorded == "the rest"
