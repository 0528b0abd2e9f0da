"""What the client gets through the proxy is what the server sends."""

import asyncio
import gzip
import json
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ale.testing.openai_server import openai_server
from ale_proxy.running import run_to_end

from .conftest import Proxied, ask_raw

MESSAGE = {"role": "assistant", "content": "Hé, 1 < 2"}
CHAT = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
}
BODY = json.dumps(CHAT, indent=3)
EVENTS = [
    'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m",  "choices":'
    '[{"index":0,"delta":{"role":"assistant","content":"He"},"finish_reason":null}]}\n\n',
    ": a comment\n\n",
    'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    '[{"index":0,"delta":{"content":"llo"},"finish_reason":"stop"}]}\r\n\r\n',
    "data: [DONE]\n\n",
]


def whole(body: str, *headers: str, status: str = "200 OK") -> list[str]:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", body]
    return ["\r\n".join(lines)]


def chunked(events: list[str]) -> list[str]:
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return [head, *(f"{len(event):x}\r\n{event}\r\n" for event in events), "0\r\n\r\n"]


ANSWERS = {
    "/v1/chat/completions": whole(
        BODY,
        "content-type: application/json; x=1",
        "Server: mine",
        "X-Odd: a  b",
        "Set-Cookie: a=1",
        "Set-Cookie: b=2",
    ),
    "/v1/chat/completions?stream": chunked(EVENTS),
    "/v1/embeddings": whole('{"data": [ ]}', "Content-Type: application/json"),
    "/v1/models?after=a%2Fb": whole('{"data":[]}'),
    "/v1/responses": whole("[1]", status="418 Teapot"),
    "/v1/messages": ["HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nto the end", "close"],
    "/v1/files/7": ["HTTP/1.1 204 No Content\r\n\r\n"],
    "/v1/completions": [
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"
    ],
}


def request(path: str, port: int, body: str = '{"messages": []}') -> bytes:
    method = "GET" if "models" in path or "files" in path else "POST"
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
    head += "Content-Type: application/json\r\n"
    data = body if method == "POST" else ""
    return f"{head}Content-Length: {len(data)}\r\n\r\n{data}".encode()


def parsed(answer: bytes) -> tuple[str, list[str], bytes]:
    """Status line, headers that are not about the connection, and the body out of its chunks."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    if any(line.lower() == "transfer-encoding: chunked" for line in lines):
        pieces, at = [], 0
        while at < len(body):
            begin = body.index(b"\r\n", at) + 2
            at = begin + int(body[at:begin], 16) + 2
            pieces.append(body[begin : at - 2])
        body = b"".join(pieces)
    mine = ("date:", "connection:", "transfer-encoding:")
    fields = [
        f"{name.lower()}:{value}" for name, _, value in (line.partition(":") for line in lines)
    ]
    return first, sorted(field for field in fields if not field.startswith(mine)), body


@pytest.mark.parametrize("path", ANSWERS)
async def test_status_headers_and_body_are_those_of_the_server(
    path: str, canned: Callable[[Any], str], start: Callable[..., Any]
) -> None:
    proxy: Proxied = await start(f"{canned(ANSWERS)}/v1")
    sent = "".join(piece for piece in ANSWERS[path] if piece != "close").encode("latin-1")
    assert parsed(await ask_raw(proxy.port, request(path, proxy.port))) == parsed(sent)


async def test_a_stream_is_passed_on_while_it_comes(
    canned: Callable[[Any], str], start: Callable[..., Any]
) -> None:
    head, first, *rest = chunked(EVENTS)
    proxy: Proxied = await start(canned({"/v1/chat/completions": [head, first, 30.0, *rest]}))
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(request("/v1/chat/completions", proxy.port))
    got = await asyncio.wait_for(reader.readuntil(b'"He"'), 60)
    assert got.startswith(b"HTTP/1.1 200 OK")
    writer.close()


async def test_an_answer_that_breaks_off_breaks_off_for_the_client(
    canned: Callable[[Any], str], start: Callable[..., Any]
) -> None:
    head, first, *_ = chunked(EVENTS)
    proxy: Proxied = await start(canned({"/v1/chat/completions": [head, first, "close"]}))
    got = await ask_raw(proxy.port, request("/v1/chat/completions", proxy.port))
    assert b'"He"' in got
    assert not got.endswith(b"0\r\n\r\n")
    (session,) = proxy.sessions
    assert dict(session.left_out) == {"the server broke off its answer": 1}


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [("not HTTP at all\r\n\r\n", "Bad status line"), ("", "Server disconnected")],
)
async def test_a_server_that_sends_garbage_is_named_and_not_repeated(
    garbage: str, reason: str, canned: Callable[[Any], str], start: Callable[..., Any]
) -> None:
    upstream = canned({"/v1/chat/completions": [garbage, "close"]})
    proxy: Proxied = await start(upstream)
    got = (await ask_raw(proxy.port, request("/v1/chat/completions", proxy.port))).decode()
    assert got.startswith("HTTP/1.1 502 ")
    assert f"ale proxy: the server at {upstream} did not answer: " in got
    assert reason in got


async def test_a_server_that_is_not_there_is_a_502_with_its_address_and_the_reason(
    start: Callable[..., Any],
) -> None:
    proxy: Proxied = await start("http://127.0.0.1:9/v1")
    got = (await ask_raw(proxy.port, request("/v1/models", proxy.port))).decode()
    assert got.startswith("HTTP/1.1 502 ")
    refused = "the server at http://127.0.0.1:9 did not answer: Connection refused"
    assert f"ale proxy: {refused}" in got


@pytest.mark.parametrize(
    "path", ["/ale/update", "/%61le/pause?x", "/ale%2Fupdate", "//ale/update", "/v1/../ale/update"]
)
async def test_what_changes_weights_is_not_forwarded(
    path: str, canned: Callable[[Any], str], start: Callable[..., Any]
) -> None:
    proxy: Proxied = await start(canned({path: whole("{}")}))
    got = await ask_raw(proxy.port, request(path, proxy.port))
    assert got.startswith(b"HTTP/1.1 403 ")
    assert b"are not forwarded" in got


async def test_a_client_that_leaves_ends_the_request_to_the_server(
    start: Callable[..., Any],
) -> None:
    with openai_server([{"text": "Hello there.", "fault": "stall"}]) as server:
        proxy: Proxied = await start(server.url)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        body = '{"messages": [{"role": "user", "content": "x"}], "stream": true}'
        writer.write(request("/v1/chat/completions", proxy.port, body))
        await asyncio.wait_for(reader.readuntil(b"content"), 60)
        writer.close()
        assert await server.outcome(0) == "client_left"


async def test_the_server_gets_the_headers_that_the_client_sends(start: Callable[..., Any]) -> None:
    with openai_server({"*": {"text": "Hi."}}) as server:
        proxy: Proxied = await start(server.url)
        body = '{"messages": [{"role": "user", "content": "x"}]}'
        odd = (
            "Authorization: Bearer abc\r\nX-Odd: a  b\r\nAccept-Encoding: br, gzip;q=0.5, zstd\r\n"
        )
        kind = "Content-Type: application/json\r\n"
        own = "X-Ale-Session: s\r\nX-Ale-Task: t\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n"
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{kind}{odd}{own}"
        asked = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        assert b" 200 OK" in await ask_raw(proxy.port, asked)
        (arrived,) = server.requests()
    assert arrived["headers"] == {
        "host": server.url.split("/")[2],
        "content-type": "application/json",
        "authorization": "Bearer abc",
        "x-odd": "a  b",
        "accept-encoding": "gzip;q=0.5",
        "content-length": str(len(body)),
    }


async def test_a_long_body_that_is_not_recorded_is_sent_on_whole(
    start: Callable[..., Any], canned: Callable[[Any], str]
) -> None:
    proxy: Proxied = await start(canned({"/v1/files": whole("stored")}))
    body = "x" * 5_000_000
    head = "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: {len(body)}"
    got = await ask_raw(proxy.port, f"{head}\r\n\r\n{body}".encode())
    assert parsed(got)[2] == b"stored"
    assert not list(proxy.sessions)


async def test_a_compressed_answer_passes_compressed_and_is_recorded(
    start: Callable[..., Any], canned: Callable[[Any], str]
) -> None:
    body = gzip.compress(BODY.encode()).decode("latin-1")
    proxy: Proxied = await start(
        canned({"/v1/chat/completions": whole(body, "Content-Encoding: gzip")})
    )
    asked = '{"messages": [{"role": "user", "content": "x"}]}'
    got = await ask_raw(proxy.port, request("/v1/chat/completions", proxy.port, asked))
    assert parsed(got)[2] == body.encode("latin-1")
    (session,) = proxy.sessions
    (turn,) = session.conversation.turns
    assert turn.completion.message.content == MESSAGE["content"]


async def test_a_compressed_answer_of_too_many_bytes_passes_and_is_not_recorded(
    start: Callable[..., Any], canned: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale_proxy.exchange.MOST_BODY", 10_000)
    body = gzip.compress(BODY.encode() + b" " * 100_000).decode("latin-1")
    proxy: Proxied = await start(
        canned({"/v1/chat/completions": whole(body, "Content-Encoding: gzip")})
    )
    asked = '{"messages": [{"role": "user", "content": "x"}]}'
    got = await ask_raw(proxy.port, request("/v1/chat/completions", proxy.port, asked))
    assert parsed(got)[2] == body.encode("latin-1")
    assert not [turn for session in proxy.sessions for turn in session.conversation.turns]


async def test_a_slow_client_makes_the_server_wait_and_gets_every_byte(
    start: Callable[..., Any],
) -> None:
    """What is read from the server waits for the client: 64 MiB fit nowhere in between."""
    pieces = [bytes([n % 256]) * 65536 for n in range(1024)]
    all_sent = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        all_sent.set()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        proxy: Proxied = await start(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(request("/v1/files/7", proxy.port))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(all_sent.wait(), 2)
        got = await asyncio.wait_for(reader.read(), 60)
        writer.close()
    assert parsed(got)[2] == b"".join(pieces)


def event(**choice: Any) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, **choice}]})}\n\n"


TOKENS = [event(delta={"content": f"{n} "}) for n in range(298)]
TOKENS += [event(delta={}, finish_reason="stop"), "data: [DONE]\n\n"]
ONE_BY_ONE = chunked(TOKENS)
AT = ONE_BY_ONE[9]


def lines_apart(piece: str) -> str:
    return piece.replace("\n\n", "\r\n\r\n")


@pytest.mark.parametrize(
    "pieces",
    [
        ONE_BY_ONE,
        [ONE_BY_ONE[0], *("".join(ONE_BY_ONE[at : at + 3]) for at in range(1, 302, 3))],
        [*ONE_BY_ONE[:9], AT[:1], AT[1:], *ONE_BY_ONE[10:]],
        [*ONE_BY_ONE[:9], AT[:-1], AT[-1:] + ONE_BY_ONE[10], *ONE_BY_ONE[11:]],
        [ONE_BY_ONE[0], *(piece.replace("\r\n", ";odd=1\r\n", 1) for piece in ONE_BY_ONE[1:])],
        [ONE_BY_ONE[0], *(piece[:2].upper() + piece[2:] for piece in ONE_BY_ONE[1:])],
        chunked([lines_apart(each) for each in TOKENS]),
        chunked([each[at:][:40] for each in TOKENS for at in range(0, len(each), 40)]),
    ],
    ids=[
        *("an event a chunk", "several at once", "a cut in the length", "a cut at the end"),
        *("extensions", "capitals", "CRLF", "events in several chunks"),
    ],
)
async def test_however_a_stream_is_cut_it_passes_whole_and_is_recorded(
    pieces: list[str], start: Callable[..., Any]
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece.encode())
            await asyncio.sleep(0.001)  # so that each comes by itself
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        proxy: Proxied = await start(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        asked = '{"messages": [{"role": "user", "content": "Count."}], "stream": true}'
        got = await ask_raw(proxy.port, request("/v1/chat/completions", proxy.port, asked))
        (session,) = proxy.sessions
    same = "".join(TOKENS)
    assert parsed(got)[2].decode().replace("\r\n", "\n") == same
    (turn,) = session.conversation.turns
    assert turn.completion.message.content == "".join(f"{n} " for n in range(298))


async def test_a_connection_to_the_server_is_used_again_after_a_stream(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ale_proxy.running.KEEP_S", 600.0)
    connections: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        while await reader.read(65536):
            for piece in chunked(EVENTS):
                writer.write(piece.encode())
                await asyncio.sleep(0.001)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        proxy: Proxied = await start(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for _ in range(3):
            got = await ask_raw(proxy.port, request("/v1/files/7", proxy.port))
            assert parsed(got)[2] == "".join(EVENTS).encode()
        assert len(connections) == 1
        connections[0].close()


@pytest.mark.parametrize("there", [True, False])
def test_without_uvloop_the_event_loop_of_asyncio_serves_and_that_is_said(
    there: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not there:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    found = list[str]()

    async def serving() -> None:
        found.append(type(asyncio.get_running_loop()).__module__.partition(".")[0])

    run_to_end(serving())
    assert found == ["uvloop" if there else "asyncio"]
    assert ("uvloop can't be used" in caplog.text) is not there
