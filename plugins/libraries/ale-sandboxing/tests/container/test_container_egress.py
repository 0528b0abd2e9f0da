"""The egress proxy against a hostile client: what it carries, what it refuses, what it costs."""

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from ale.testing.waiting import until
from ale_sandboxing.container import egress
from ale_sandboxing.container.egress import EgressProxy, Limits, RefusedError, read_head
from ale_sandboxing.container.hosts import AllowedHosts, leads_inside, own_addresses
from ale_sandboxing.container.tls import NotTlsError, server_name

HOME = "127.0.0.1"
SMALL = Limits(connections=4, head_s=0.5, idle_s=0.5, dial_s=2.0)


def hello(name: str | None) -> bytes:
    """The first message of a real client of TLS."""
    context = ssl.create_default_context()
    context.check_hostname = False
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


@contextlib.asynccontextmanager
async def proxy(hosts: Sequence[str], limits: Limits = SMALL) -> AsyncIterator[int]:
    """A proxy on this machine's loopback; its port."""
    listener = socket.create_server((HOME, 0), backlog=1024)
    gate = EgressProxy(AllowedHosts(hosts), limits)
    gate.serve_on(listener)
    try:
        yield listener.getsockname()[1]
    finally:
        gate.close()
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def far(
    host: str = HOME, answer: bytes = b"answer"
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers whatever it is told and ends; its port, and what it was told."""
    told: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append(await reader.read(1 << 16))
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, host, 0)
    try:
        yield server.sockets[0].getsockname()[1], told
    finally:
        server.close()
        await server.wait_closed()


async def said(port: int, *pieces: bytes) -> bytes:
    """All that the proxy answers to some bytes, each sent after an answer to the one before."""
    reader, writer = await asyncio.open_connection(HOME, port)
    answer = b""
    try:
        for place, piece in enumerate(pieces):
            if place:
                answer += await reader.readuntil(b"\r\n\r\n")
            writer.write(piece)
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionResetError):
                return answer + await reader.read()
            return answer
    finally:
        writer.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


async def test_a_thousand_idle_connections_cost_few_descriptors_and_only_their_own_proxy() -> None:
    async with far() as (port, _), proxy([HOME]) as attacked, proxy([HOME]) as other:
        ask = f"GET http://{HOME}:{port}/ HTTP/1.1\r\n\r\n".encode()
        before = descriptors()
        idle = [socket.create_connection((HOME, attacked)) for _ in range(1024)]
        try:
            await asyncio.sleep(0.2)
            taken = descriptors() - before - len(idle)
            assert taken <= SMALL.connections, f"{taken} descriptors for idle connections"
            assert (await said(other, ask)) == b"answer"
        finally:
            for one in idle:
                one.close()
        # What has gone is noticed, so the attacked one serves again.
        assert (await said(attacked, ask)) == b"answer"


async def test_idle_connections_and_slow_heads_are_ended() -> None:
    async with far() as (port, _), proxy([HOME]) as place:
        ask = f"GET http://{HOME}:{port}/ HTTP/1.1\r\n\r\n".encode()
        silent = [await asyncio.open_connection(HOME, place) for _ in range(SMALL.connections)]
        for _, writer in silent[:2]:
            writer.write(ask[:20])
        assert (await said(place, ask)) == b"answer", "it waited for connections that say nothing"
        assert [await reader.read() for reader, _ in silent] == [b""] * len(silent)
        for _, writer in silent:
            writer.close()


@pytest.mark.parametrize("first", [b"", b"x"])
async def test_a_tunnel_in_which_nothing_moves_is_ended(first: bytes) -> None:
    release = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    server = await asyncio.start_server(silent, HOME, 0)
    port = server.sockets[0].getsockname()[1]
    async with proxy([HOME]) as place:
        answer = await said(place, f"CONNECT {HOME}:{port} HTTP/1.1\r\n\r\n".encode(), first)
        assert answer.startswith(b"HTTP/1.1 200")
    release.set()
    server.close()


async def test_a_tunnel_in_which_something_moves_is_kept() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(5):
            await asyncio.sleep(0.3)
            writer.write(b"x")
        writer.close()

    server = await asyncio.start_server(slow, HOME, 0)
    port = server.sockets[0].getsockname()[1]
    async with proxy([HOME], Limits(idle_s=1.0)) as place:
        answer = await said(place, f"CONNECT {HOME}:{port} HTTP/1.1\r\n\r\n".encode(), b"")
        assert answer.partition(b"\r\n\r\n")[2] == b"xxxxx"
    server.close()


async def test_a_head_without_end_is_refused() -> None:
    async with proxy([HOME]) as place:
        told = await said(place, b"GET /" + b"a" * (SMALL.head_bytes + 100))
        assert told.startswith(b"HTTP/1.1 431 "), told


async def test_a_change_of_hosts_ends_what_is_under_way() -> None:
    listener = socket.create_server((HOME, 0))
    gate = EgressProxy(AllowedHosts([HOME]))
    gate.serve_on(listener)
    async with far() as (port, _):
        reader, writer = await asyncio.open_connection(HOME, listener.getsockname()[1])
        writer.write(f"CONNECT {HOME}:{port} HTTP/1.1\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        gate.hosts = AllowedHosts([])
        gate.cut()
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await until(lambda: not gate._serving, "the end of the connection")
    gate.close()


async def test_the_host_that_was_allowed_is_the_one_that_is_asked() -> None:
    async with far() as (port, told), proxy([HOME]) as place:
        head = f"GET http://{HOME}:{port}/a?b HTTP/1.1\r\nhOsT : evil\r\nA: b\r\nhost: evil\r\n\r\n"
        assert await said(place, head.encode()) == b"answer"
        expected = f"GET /a?b HTTP/1.1\r\nHost: {HOME}:{port}\r\nA: b\r\nConnection: close\r\n\r\n"
        assert told == [expected.encode()]


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1",
        b"GET http:/// HTTP/1.1",
        b"GET https://a/ HTTP/1.1",
        b"GET http://a:b/ HTTP/1.1",
        b"GET http://a/ HTTP/2.0",
        b"GET http://a/ b HTTP/1.1",
        b"CONNECT /a HTTP/1.1",
        b"GET http://a/ HTTP/1.1\r\nA: b\r\n Host: evil",
        b"GET http://a/ HTTP/1.1\r\nA: b\nHost: evil",
        b"GET http://a/ HTTP/1.1\r\nA: b\rHost: evil",
        b"",
    ],
)
def test_a_head_that_could_be_read_in_two_ways_is_refused(head: bytes) -> None:
    with pytest.raises(RefusedError) as refused:
        read_head(head + b"\r\n\r\n")
    assert refused.value.status == 400


async def test_a_tunnel_to_a_name_carries_tls_for_that_name_alone() -> None:
    async with far() as (port, told), proxy(["localhost", HOME]) as place:

        async def through(first: bytes, host: str = "localhost") -> bytes:
            tunnel = f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode()
            return (await said(place, tunnel, first)).partition(b"\r\n\r\n")[2]

        good = hello("localhost")
        assert await through(good) == b"answer"
        assert told == [good]
        assert b"carries TLS for evil.example" in await through(hello("evil.example"))
        assert b"carries TLS for no name" in await through(hello(None))
        assert b"TLS alone" in await through(b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n")
        assert await through(b"GET / HTTP/1.1\r\n\r\n", HOME) == b"answer"
        assert told[1:] == [b"", b"", b"", b"GET / HTTP/1.1\r\n\r\n"], "refused bytes were sent"


def test_the_name_is_found_however_the_message_is_cut() -> None:
    whole = hello("a.example")
    body = whole[5:]
    assert server_name(whole) == "a.example"
    for size in (1, 3, 100):
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        records = [whole[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces]
        assert server_name(b"".join(records)) == "a.example"
        assert server_name(b"".join(records[:-1])) is None
    assert {server_name(whole[:end]) for end in range(len(whole))} == {None}
    assert server_name(hello(None)) == ""


def test_damaged_messages_are_no_tls() -> None:
    """Whatever is changed, the answer is a name, an error, or that more is to come."""
    whole = hello("a.example")
    for place in range(len(whole)):
        for value in (0, 1, 255):
            with contextlib.suppress(NotTlsError):
                server_name(whole[:place] + bytes([value]) + whole[place + 1 :])
    twice = whole.replace(b"\x00\x00\x00\x0e", b"\x00\x00\x00\x0f", 1)
    with pytest.raises(NotTlsError):
        server_name(twice)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "224.0.0.1"),
        *("::1", "::", "fe80::1", "fe80::1%2", "ff02::1", "fd00:ec2::254"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "2002:7f00:1::"),
        *("64:ff9b::169.254.169.254", "100.100.100.200", "168.63.129.16"),
    ],
)
def test_an_address_that_means_something_else_here_is_not_reached_by_a_name(address: str) -> None:
    assert leads_inside(address)
    assert not AllowedHosts(["a.example", "0.0.0.0/0", "::/0"]).allow_address(address)
    plain = address.partition("%")[0]
    assert AllowedHosts([plain]).allow_address(plain), "it is listed itself"


def test_addresses_of_the_world_and_of_a_private_network_are_reached() -> None:
    for address in ("93.184.216.34", "10.1.2.3", "2606:2800:220:1::1", "64:ff9b::8.8.8.8"):
        assert AllowedHosts(["a.example"]).allow_address(address, own_addresses()) is True


async def test_this_machines_own_addresses_are_not_reached_by_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))  # sends nothing
        mine = sock.getsockname()[0]
    assert HOME in map(str, own_addresses())
    if mine != HOME:
        assert mine in map(str, own_addresses())
    for address in (mine, "169.254.169.254", f"::ffff:{mine}"):
        with answering(monkeypatch, address):
            async with proxy(["a.example"]) as place:
                told = await said(place, b"GET http://a.example/ HTTP/1.1\r\n\r\n")
                assert b"502" in told, told
                assert b"this machine's own" in told


@contextlib.contextmanager
def answering(monkeypatch: pytest.MonkeyPatch, *answers: str) -> Iterator[list[Any]]:
    """A name server that somebody else runs: it gives one answer after the other."""
    asked: list[Any] = []

    def look_up(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        address = answers[min(len(asked), len(answers)) - 1]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (address, port))]

    with monkeypatch.context() as patch:
        patch.setattr(egress.socket, "getaddrinfo", look_up)
        yield asked


async def test_a_name_is_looked_up_once_and_what_was_checked_is_what_is_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with far("127.0.0.2", b"checked") as (port, _):
        with answering(monkeypatch, "127.0.0.2", HOME) as asked:
            async with proxy(["a.example", "127.0.0.2"]) as place:
                ask = f"GET http://a.example:{port}/ HTTP/1.1\r\n\r\n".encode()
                assert await said(place, ask) == b"checked"
                assert asked == ["a.example"]
                assert b"own" in await said(place, ask), "the second answer leads inside"


async def test_ports_of_other_services_are_not_reached() -> None:
    async with proxy([HOME]) as place:
        for port in (22, 25, 445, 993):
            told = await said(place, f"CONNECT {HOME}:{port} HTTP/1.1\r\n\r\n".encode())
            assert told.startswith(b"HTTP/1.1 403"), told
        assert (await said(place, f"GET http://{HOME}:25/ HTTP/1.1\r\n\r\n".encode()))[
            9:12
        ] == b"403"


async def test_a_name_that_is_looked_up_for_ever_holds_up_no_other_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import threading

    never = threading.Event()
    really: Callable[..., Any] = socket.getaddrinfo

    def slow(host: str, *args: Any, **more: Any) -> Any:
        if host.endswith("slow.example"):
            never.wait(10)
        return really(host, *args, **more)

    monkeypatch.setattr(egress.socket, "getaddrinfo", slow)
    limits = Limits(dial_s=0.5)
    async with (
        far() as (port, _),
        proxy(["*.slow.example"], limits) as attacked,
        proxy([HOME]) as other,
    ):
        slow_ones = [
            asyncio.ensure_future(
                said(attacked, f"GET http://{n}.slow.example/ HTTP/1.1\r\n\r\n".encode())
            )
            for n in range(40)
        ]
        await asyncio.sleep(0.1)
        ask = f"GET http://{HOME}:{port}/ HTTP/1.1\r\n\r\n".encode()
        assert await said(other, ask) == b"answer"
        answers = await asyncio.gather(*slow_ones)
        assert {answer[:12] for answer in answers} == {b"HTTP/1.1 504"}
        never.set()


_NOBODY = 65534
_NAMESPACES = """
import ctypes, fcntl, os, socket, struct, sys
os.setgid(65534); os.setuid(65534)
libc = ctypes.CDLL(None)
if libc.unshare(0x10000000 | 0x40000000):
    sys.exit("no user namespaces")
libc.prctl(4, 1)  # another process of this user may look, as after any exec
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sh", b"lo", 0x41))  # up and running
print("made", flush=True)
sys.stdin.read()
"""


def _as_nobody(pid: int) -> str:
    """What `listening` does in a process of another user than root."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
            told = str(egress.listening(pid).getsockname())
        except BaseException as error:
            told = str(error)
        os.write(writing, told.encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(reading, 4096).decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_who_owns_the_namespaces_of_a_container_needs_no_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    python = "/usr/bin/python3"  # that of the tests may lie where only root can read
    if not os.access(python, os.X_OK):
        pytest.skip(f"needs {python}")
    monkeypatch.setattr(sys, "executable", python)
    with subprocess.Popen(
        [python, "-c", _NAMESPACES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as box:
        assert box.stdout is not None
        if box.stdout.readline() != "made\n":
            pytest.skip("no user namespaces here")
        assert _as_nobody(box.pid) == f"('127.0.0.1', {egress.PORT})"
        box.communicate("")
    with subprocess.Popen(
        ["unshare", "-n", "sh", "-c", "echo made; read x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as of_root:
        assert of_root.stdout is not None
        if of_root.stdout.readline() == "made\n":
            assert "needs root on the engine's own machine, or a rootless" in _as_nobody(
                of_root.pid
            )
        of_root.communicate("")
