"""Streams through ``ale proxy`` against the same streams without it, in one run.

Server, proxy and client are three processes. The server writes into each chunk when it was sent, on
the clock that all processes of a machine share; so a chunk's latency is exact. Each round has 200
agents directly, each with one stream after the other on a connection that it keeps, as the openai
client does, then 200 through a relay of C (`relay.c`) that copies bytes and reads nothing,
which is what a process in between costs at the least, then through such a relay in Python, in
uvloop's event loop as the proxy, then through the proxy, and, where that is permitted, through one
with a higher priority. What each adds is the difference of two medians of one round. Beside it
stands the CPU time that each took for a chunk, requests and records included: a machine with other
work changes that little, while it hides latencies behind the time until a process is scheduled. Run
it there with ``chrt -f 5``.

Run with ``python tests/bench/bench_proxy.py [STREAMS]``; it needs ``cc``. Exit status 1 if an aim
is missed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import cast

import uvloop
from attrs import field, frozen

STREAMS = 200
TURNS = 4
"""Streams of an agent, one after the other."""
CHUNKS = 30
EVERY_S = 0.05
"""Of each stream: 20 tokens a second."""
PAUSE_S = 0.2
"""At most, between two turns: the agent runs a command."""
ROUNDS = 3
REQUEST_MS, CHUNK_MS = 2.0, 0.1
PREFERRED = ("nice", "-n", "-10")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    b'[{"index":0,"delta":{"content":"token"},"finish_reason":%s}],"sent":%.7f}\n\n'
)
SENT = re.compile(rb'"sent":([0-9.]+)')


class _Server(asyncio.Protocol):
    """Streams chunks for every request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._client, self._asked = transport, b""

    def data_received(self, data: bytes) -> None:
        self._asked += data
        head, end, body = self._asked.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *([0-9]+)", head.lower())
        if end and length and len(body) == int(length[1]):
            self._asked = b""
            self._client.write(HEAD)
            self._begun = asyncio.get_running_loop().time()
            self._send(CHUNKS)

    def _send(self, left: int) -> None:
        if self._client.is_closing():
            return
        event = EVENT % (b"null" if left > 1 else b'"stop"', time.monotonic())
        self._client.write(b"%x\r\n%s\r\n" % (len(event), event))
        if left > 1:
            # Not so long after the last one: streams that were late together would stay together.
            at = self._begun + (CHUNKS - left + 1) * EVERY_S
            asyncio.get_running_loop().call_at(at, self._send, left - 1)
        else:
            self._client.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


class _ToClient(asyncio.Protocol):
    def __init__(self, client: asyncio.Transport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._client.close()


class _Relay(asyncio.Protocol):
    def __init__(self, server: int) -> None:
        self._port, self._early = server, b""
        self._server: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connecting = asyncio.ensure_future(self._connect(cast(asyncio.Transport, transport)))

    async def _connect(self, client: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        made = loop.create_connection(lambda: _ToClient(client), "127.0.0.1", self._port)
        self._server = (await made)[0]
        self._server.write(self._early)

    def data_received(self, data: bytes) -> None:
        if self._server is None:
            self._early += data
        else:
            self._server.write(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._server is not None:
            self._server.close()


async def serve(relayed: int | None) -> None:
    """The server, or a relay to the one at a port, until it is ended."""
    loop = asyncio.get_running_loop()
    make = _Server if relayed is None else lambda: _Relay(relayed)
    server = await loop.create_server(make, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


class _Client(asyncio.Protocol):
    """Seconds from each request to the head of its answer, and the latency of each chunk."""

    def __init__(self) -> None:
        self.requests_s, self.chunks_s = list[float](), list[float]()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.server = transport

    async def ask(self, name: str) -> None:
        """One stream, to its end."""
        self._ended, self._begun, self._chunks = asyncio.Event(), False, list[float]()
        body = json.dumps({"stream": True, "messages": [{"role": "user", "content": name}]})
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        head += "Content-Type: application/json\r\n"
        head += f"X-Ale-Session: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._asked = time.monotonic()
        self.server.write((head + body).encode())
        await self._ended.wait()
        assert len(self._chunks) == CHUNKS, "the answer broke off"
        self.chunks_s += self._chunks[1:]

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        if not self._begun:
            self._begun = True
            self.requests_s.append(now - self._asked)
        self._chunks += [now - float(sent) for sent in SENT.findall(data)]
        if data.endswith(b"0\r\n\r\n"):
            self._ended.set()

    def connection_lost(self, _: Exception | None) -> None:
        self._ended.set()


async def agent(port: int, name: str, rng: random.Random) -> _Client:
    """One that asks for one stream after the other."""
    await asyncio.sleep(rng.random())
    made = await asyncio.get_running_loop().create_connection(_Client, "127.0.0.1", port)
    for _ in range(TURNS):
        await asyncio.sleep(rng.random() * PAUSE_S)
        await made[1].ask(name)
    made[1].server.close()
    return made[1]


@frozen
class Way:
    """By which streams are asked for."""

    port: int
    process: int | None = None
    first_ms: list[float] = field(factory=list)
    requests_ms: list[float] = field(factory=list)
    chunks_ms: list[float] = field(factory=list)
    cpu_ms: list[float] = field(factory=list)

    async def measure(self, prefix: str, streams: int) -> None:
        """All agents at once."""
        before = cpu_s(self.process)
        asked = [agent(self.port, f"{prefix}-{n}", random.Random(n)) for n in range(streams)]
        done = await asyncio.gather(*asked)
        self.first_ms.append(median_ms(each.requests_s[:1] for each in done))
        self.requests_ms.append(median_ms(each.requests_s for each in done))
        self.chunks_ms.append(median_ms(each.chunks_s for each in done))
        self.cpu_ms.append((cpu_s(self.process) - before) / streams / TURNS / CHUNKS * 1e3)


def median_ms(latencies_s: Iterable[list[float]]) -> float:
    """Of all latencies."""
    return statistics.median(chain.from_iterable(latencies_s)) * 1e3


def cpu_s(process: int | None) -> float:
    """CPU seconds that a process has taken."""
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def process(*command: str) -> Iterator[tuple[str, int]]:
    """The first line that it prints, and its id."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        try:
            yield started.stdout.readline().strip(), started.pid
        finally:
            started.terminate()


def main(streams: int) -> int:
    """Print a table."""
    ale, own = str(Path(sys.executable).with_name("ale")), (sys.executable, __file__)
    missed = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        bare, source = f"{folder}/relay", str(Path(__file__).with_name("relay.c"))
        subprocess.run(["cc", "-O2", "-o", bare, source], check=True)
        server, _ = stack.enter_context(process(*own, "--serve"))
        proxy = (ale, "proxy", f"http://127.0.0.1:{server}", "--port", "0", "--run")
        commands = {
            "relay in C": (bare, server),
            "relay": (*own, "--relay", server),
            "proxy": (*proxy, f"{folder}/run"),
        }
        if not subprocess.run([*PREFERRED, "true"], capture_output=True, check=True).stderr:
            commands[" ".join(PREFERRED)] = (*PREFERRED, *proxy, f"{folder}/preferred")
        ways = {"direct": Way(int(server))}
        for name, command in commands.items():
            said, number = stack.enter_context(process(*command))
            ways[name] = Way(int(re.findall("[0-9]+", said.removesuffix("/v1"))[-1]), number)
        for number in range(ROUNDS):
            for way in ways.values():
                asyncio.run(way.measure(f"r{number}", streams))
            direct = ways["direct"]
            print(
                f"{streams} agents  request, ms  added  (first)  a chunk, ms  added  CPU ms a chunk"
            )
            for name, way in ways.items():
                request, chunk = way.requests_ms[-1], way.chunks_ms[-1]
                more, later = request - direct.requests_ms[-1], chunk - direct.chunks_ms[-1]
                first = way.first_ms[-1] - direct.first_ms[-1]
                missed += name == "proxy" and (more > REQUEST_MS) + (later > CHUNK_MS)
                print(
                    f"{name:12}{request:12.3f}{more:7.3f}{first:9.3f}{chunk:13.3f}{later:7.3f}"
                    f"{way.cpu_ms[-1]:16.3f}",
                    flush=True,
                )
            print(f"{'aim':12}{REQUEST_MS:19g}{CHUNK_MS:29g}")
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("streams", nargs="?", type=int, default=STREAMS)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--relay", type=int)
    asked = parser.parse_args()
    if asked.serve:
        asyncio.run(serve(None))
    elif asked.relay is not None:
        uvloop.run(serve(asked.relay))
    else:
        sys.exit(main(asked.streams))
