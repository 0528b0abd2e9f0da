"""Streams through ``ale proxy`` against the same streams without it, in one run.

Server, proxy and client are three processes. The server writes into each chunk when it was sent, on
the clock that all processes of a machine share; so a chunk's latency is exact. Each round has 200
streams directly, then 200 through a relay of C (`relay.c`) that copies bytes and reads nothing,
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
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import uvloop
from attrs import field, frozen

STREAMS = 200
CHUNKS = 60
EVERY_S = 0.05
"""Of each stream: 20 tokens a second."""
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
    """One stream: seconds to the head of the answer, and the latency of each chunk."""

    def __init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self.request_s, self.chunks_s, self._asked = 0.0, list[float](), 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._server = transport

    def ask(self, name: str) -> None:
        body = json.dumps({"stream": True, "messages": [{"role": "user", "content": name}]})
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
        head += f"X-Ale-Session: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._asked = time.monotonic()
        self._server.write((head + body).encode())

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self.request_s = self.request_s or now - self._asked
        self.chunks_s += [now - float(sent) for sent in SENT.findall(data)]
        if data.endswith(b"0\r\n\r\n"):
            self.ended.set_result(None)
            self._server.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(error or ConnectionError("the answer broke off"))


async def stream(port: int, name: str, delay_s: float) -> _Client:
    """Ask for one stream, after a while."""
    await asyncio.sleep(delay_s)
    made = await asyncio.get_running_loop().create_connection(_Client, "127.0.0.1", port)
    made[1].ask(name)
    await made[1].ended
    assert len(made[1].chunks_s) == CHUNKS
    return made[1]


@frozen
class Way:
    """By which streams are asked for."""

    port: int
    process: int | None = None
    requests_ms: list[float] = field(factory=list)
    chunks_ms: list[float] = field(factory=list)
    cpu_ms: list[float] = field(factory=list)

    async def measure(self, prefix: str, streams: int) -> None:
        """All streams at once."""
        rng, before = random.Random(0), cpu_s(self.process)
        asked = [stream(self.port, f"{prefix}-{n}", rng.random()) for n in range(streams)]
        done = await asyncio.gather(*asked)
        self.requests_ms.append(statistics.median(each.request_s for each in done) * 1e3)
        latencies = [latency for each in done for latency in each.chunks_s[1:]]
        self.chunks_ms.append(statistics.median(latencies) * 1e3)
        self.cpu_ms.append((cpu_s(self.process) - before) / streams / CHUNKS * 1e3)


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
            print(f"{streams} streams  request, ms  added  a chunk, ms  added  CPU ms a chunk")
            for name, way in ways.items():
                request, chunk = way.requests_ms[-1], way.chunks_ms[-1]
                more, later = request - direct.requests_ms[-1], chunk - direct.chunks_ms[-1]
                missed += name == "proxy" and (more > REQUEST_MS) + (later > CHUNK_MS)
                print(
                    f"{name:12}{request:13.3f}{more:7.3f}{chunk:13.3f}{later:7.3f}"
                    f"{way.cpu_ms[-1]:16.3f}"
                )
            print(f"{'aim':12}{REQUEST_MS:20g}{CHUNK_MS:20g}")
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
