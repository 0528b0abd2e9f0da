"""Streams through ``ale proxy`` against the same streams without it, in one run.

Server, proxy and client are three processes. The server writes into each chunk when it was sent, on
the clock that all processes of a machine share; so a chunk's latency is exact, and what the proxy
adds is the difference of two medians of the same moment: a third of the streams go directly, a
third through the proxy, and a third through a relay that copies bytes and reads nothing, which is
what a process in between costs at the least.

On a machine with other work the time until a process is scheduled hides everything else: run it
there with ``chrt -f 5``.

Run with ``python tests/bench/bench_proxy.py``. Exit status 1 if an aim is missed.
"""

import asyncio
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

STREAMS = 200
CHUNKS = 40
EVERY_S = 0.1
ROUNDS = 3
REQUEST_MS, CHUNK_MS = 2.0, 0.1
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(sent: float, end: bool = False) -> bytes:
    """One chunk of a stream, with the time at which it is sent."""
    choice = {"index": 0, "delta": {"content": "token"}, "finish_reason": "stop" if end else None}
    data = {"object": "chat.completion.chunk", "model": "m", "choices": [choice], "sent": sent}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Stream chunks for every request."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            writer.write(HEAD)
            for number in range(CHUNKS):
                text = event(time.monotonic(), end=number == CHUNKS - 1)
                writer.write(b"%x\r\n%s\r\n" % (len(text), text))
                await asyncio.sleep(EVERY_S)
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


async def serve() -> None:
    """The server, until it is ended."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


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
        assert isinstance(transport, asyncio.Transport)
        self._connecting = asyncio.ensure_future(self._connect(transport))

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


async def relay(port: int) -> None:
    """Copy bytes between clients and the server at a port, until it is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Relay(port), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


async def stream(port: int, number: int, delay_s: float) -> tuple[float, list[float]]:
    """Seconds to the head of the answer, and the latency of each chunk after the first."""
    await asyncio.sleep(delay_s)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"stream": True, "messages": [{"role": "user", "content": str(number)}]})
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    head += f"X-Ale-Session: s{number}\r\nContent-Length: {len(body)}\r\n\r\n"
    began = time.monotonic()
    writer.write((head + body).encode())
    await reader.readuntil(b"\r\n\r\n")
    request_s = time.monotonic() - began
    latencies: list[float] = []
    while (line := await reader.readline()) != b"0\r\n":
        if line.startswith(b"data: {"):
            latencies.append(time.monotonic() - json.loads(line[6:])["sent"])
    writer.close()
    return request_s, latencies[1:]


async def measure(ports: list[int]) -> dict[int, tuple[list[float], list[float]]]:
    """Request and chunk latencies by port, of streams that all run at once."""
    rng = random.Random(0)
    chosen = [ports[number % len(ports)] for number in range(STREAMS)]
    asked = [stream(port, n, rng.random() * 2) for n, port in enumerate(chosen)]
    found: dict[int, tuple[list[float], list[float]]] = {port: ([], []) for port in ports}
    for port, (request_s, chunks) in zip(chosen, await asyncio.gather(*asked), strict=True):
        found[port][0].append(request_s)
        found[port][1].extend(chunks)
    return found


@contextlib.contextmanager
def process(*command: str) -> Iterator[str]:
    """The first line that it prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        try:
            yield started.stdout.readline().strip()
        finally:
            started.terminate()


def main() -> int:
    """Print a table."""
    ale, own = str(Path(sys.executable).with_name("ale")), (sys.executable, __file__)
    missed = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        process(*own, "serve") as server,
        process(*own, "relay", server) as copying,
        process(
            ale, "proxy", f"http://127.0.0.1:{server}", "--port", "0", "--run", f"{folder}/run"
        ) as url,
    ):
        ports = [int(server), int(copying), int(url.split(":")[2].partition("/")[0])]
        print("median, ms       direct   relay   proxy  added  added to a relay  aim")
        for _ in range(ROUNDS):
            found = asyncio.run(measure(ports))
            for row, (what, aim) in enumerate((("request", REQUEST_MS), ("chunk", CHUNK_MS))):
                bare, copied, ours = (statistics.median(found[p][row]) * 1e3 for p in ports)
                missed += ours - copied > aim
                print(
                    f"{what:14} {bare:8.3f}{copied:8.3f}{ours:8.3f}{ours - bare:7.3f}"
                    f"{ours - copied:18.3f}{aim:5g}"
                )
    return 1 if missed else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    elif sys.argv[1:2] == ["relay"]:
        asyncio.run(relay(int(sys.argv[2])))
    else:
        sys.exit(main())
