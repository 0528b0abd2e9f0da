"""A real OpenAI-compatible server that plays a script in its own process.

For tests that need a socket, HTTP and another process between them and the model, and for trying
`ale` without a model::

    python -m ale.testing.openai_server --script answers.yaml --port 8123

prints ``http://127.0.0.1:8123/v1`` and serves ``/v1/chat/completions`` and ``/v1/models`` until it
is ended. In a test, `openai_server` starts it and ends it. It needs nothing beyond `ale-core`.
`scripted_server` plays the same script in another API; see `ale.testing.wire`.

**A script** is JSON or YAML, in one of three forms.

1. A list of steps, played in the order in which requests arrive.
2. A mapping from the text of the last user message to a step; the key ``*`` is for all others.
3. Conversations. The place in a script depends only on the request, so concurrent episodes and
   retries get the right step: `match`, a regular expression searched for in the first user
   message, chooses the script (the first that fits), and the number of assistant messages already
   in the conversation is the index of the step::

    conversations:
      - match: "write hello.txt"
        steps:
          - calls: [{name: shell, arguments: {command: "echo hi > hello.txt"}}]
          - before: [{fault: 429, retry_after: 0.1}, {fault: drop}]
            text: Done.

   An agent that drops old messages to shorten a conversation falls back to earlier steps of its
   script: give such a test a context that is large enough.

A request for which there is no step is answered with status 400, which no client should retry.

``models``, at the top of a script of form 2 or 3, has the objects that ``/v1/models`` lists (such
as ``{id: m, owned_by: vllm}``), or a step with an integer ``fault``; by default one model,
``scripted``. A request for a model that is not in a given list is refused with status 404; without
a given list, any name is taken.

A request for a single token, as a check before a run sends it, takes no step of the script: it is
answered with one word, or with the ``fault`` of the step ``*``.

**A step** that answers may have any of

- ``text``; ``reasoning`` (sent as ``reasoning_content``);
- ``calls``: a list of ``{name, arguments, id}``. Arguments that are a text are sent as they stand,
  valid JSON or not; others are written as JSON. Without an `id`, one is made that is unique within
  the conversation;
- ``finish_reason`` (default ``tool_calls`` with calls, else ``stop``);
- ``usage``: ``{prompt_tokens, completion_tokens}``; by default the words in the request's messages
  and in the answer are counted;
- ``tokens``: ``{prompt_ids, ids, logprobs, texts}``, sent the way vLLM does, to a request that
  has ``return_token_ids`` (the ids) and ``logprobs`` (one log-probability per id, with ``texts``);
- ``model``: the name of the model in the answer; by default, the request's;
- ``created``: the time in the answer, seconds since the epoch; by default, now;
- ``delay_s``: seconds to wait first.

**A step** that fails has ``fault``, and may have an answer for the fault to spoil:

- an integer: that HTTP status, with ``message``, ``code`` and ``retry_after`` (seconds; or the
  text ``date`` for a date between one and two seconds ahead) as given;
- ``context_length``: status 400 with the code ``context_length_exceeded``;
- ``drop``: the connection is closed without an answer; ``half``: it is closed in mid-answer;
- ``stall``: half an answer, then nothing until the client leaves; ``silence``: not even that;
- ``invalid_json``: status 200 with a body (or, streaming, an event) that is no JSON.

``before`` has faults that are played to the first requests that reach this step, one each, before
the step itself is played. It does not matter which episode a request belongs to, so a retry gets
the answer.

**Streaming** is by server-sent events when the request has ``stream: true``: text in pieces, each
tool call as a head with id and name followed by pieces of its arguments, usage at the end where
``stream_options.include_usage`` is set, then ``[DONE]``.

**The record** (``--record FILE``) has one JSON line when a request arrives: ``n``, ``at`` (seconds,
monotonic), ``connection`` (0 for the first), ``method``, ``path``, ``headers`` (lower-case names)
and ``body``; and one when it is over: ``n``, ``at`` and ``outcome``: ``answered``, ``dropped`` or
``client_left``. It holds the authorization header too: use keys that are made up.
"""

import argparse
import asyncio
import contextlib
import email.utils
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, TextIO

from attrs import asdict, frozen

from ale.testing._openai_script import NoStepError, Player, Script
from ale.testing.waiting import until
from ale.testing.wire import Step, Wire

OPENAI = "ale.testing._openai_script:OpenAIWire"
_SEND_BYTES = 1 << 16


class _OverError(Exception):
    """The connection ends without a whole answer; its text is the outcome in the record."""


_CLIENT_LEFT, _DROPPED = "client_left", "dropped"


@frozen(kw_only=True)
class _Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


async def _read_request(reader: asyncio.StreamReader) -> _Request:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.rstrip().split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (text.partition(":") for text in rest)
        }
        data = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise _OverError(_CLIENT_LEFT) from error
    method, path, _ = line.split(" ")
    return _Request(
        method=method, path=path, headers=headers, body=json.loads(data) if data else {}
    )


def _retry_after(step: Step) -> dict[str, str]:
    wait = step.get("retry_after")
    if wait == "date":
        return {"Retry-After": email.utils.formatdate(int(time.time()) + 2, usegmt=True)}
    return {} if wait is None else {"Retry-After": str(wait)}


def _encoded(events: Iterable[Mapping[str, Any]], *, spoilt: bool) -> Iterator[bytes]:
    if spoilt:
        yield b'data: {"choices": [\n\n'
    for event in events:
        yield b"data: " + json.dumps(event).encode() + b"\n\n"
    yield b"data: [DONE]\n\n"


class _Connection:
    """One connection: requests one after the other, each recorded and answered."""

    def __init__(
        self,
        player: Player,
        wire: Wire,
        record: "_Record",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._player, self._wire, self._record = player, wire, record
        self._reader, self._writer = reader, writer
        self._number = record.connected()

    async def serve(self) -> None:
        """Answer until either side closes."""
        with contextlib.suppress(_OverError):
            while True:
                request = await _read_request(self._reader)
                n = self._record.arrived(request, self._number)
                try:
                    await self._answer(request)
                except _OverError as error:
                    self._record.over(n, str(error))
                    raise
                self._record.over(n, "answered")
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def _answer(self, request: _Request) -> None:
        if not request.path.startswith("/v1/"):
            await self._send_json(404, {"error": {"message": f"nothing at {request.path}"}})
        elif request.method == "GET" and request.path.endswith("/models"):
            await self._list_models()
        elif request.method == "POST" and request.path.endswith(self._wire.path):
            try:
                step = self._player.step(self._wire.messages(request.body), request.body)
            except NoStepError as error:
                await self._send_json(400, {"error": {"message": str(error), "code": "no_step"}})
            else:
                await self._play(step, request.body)
        else:
            await self._send_json(404, {"error": {"message": f"nothing at {request.path}"}})

    async def _list_models(self) -> None:
        models = self._player.models
        if isinstance(models, Mapping):
            await self._send_json(models["fault"], self._wire.error(models))
        else:
            await self._send_json(200, {"object": "list", "data": models})

    async def _play(self, step: Step, body: Mapping[str, Any]) -> None:
        await asyncio.sleep(step.get("delay_s", 0))
        fault = step.get("fault")
        if fault in ("drop", "silence"):
            await self._break_off(fault)
        if fault == "context_length":
            await self._send_json(400, self._wire.error(step))
        elif isinstance(fault, int):
            await self._send_json(fault, self._wire.error(step), _retry_after(step))
        elif (events := self._wire.events(step, body)) is not None:
            await self._stream(events, fault)
        else:
            await self._send_whole(self._wire.answer(step, body), fault)

    async def _send_whole(self, answer: Mapping[str, Any], fault: str | None) -> None:
        data = json.dumps(answer).encode()
        if fault == "invalid_json":
            data = data[:-2]
        await self._head(200, {"Content-Type": "application/json", "Content-Length": len(data)})
        if fault in ("half", "stall"):
            await self._write(data[: len(data) // 2])
            await self._break_off(fault)
        await self._write(data)

    async def _stream(self, answer: Iterable[Mapping[str, Any]], fault: str | None) -> None:
        head = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        await self._head(200, head)
        events = [*_encoded(answer, spoilt=fault == "invalid_json")]
        if fault in ("half", "stall"):
            events = events[: len(events) // 2]
        for event in events:
            await self._write(b"%x\r\n%s\r\n" % (len(event), event))
        if fault in ("half", "stall"):
            await self._break_off(fault)
        await self._write(b"0\r\n\r\n")

    async def _break_off(self, fault: str) -> None:
        if fault in ("drop", "half"):
            raise _OverError(_DROPPED)
        with contextlib.suppress(ConnectionError):
            await self._reader.read(1)
        raise _OverError(_CLIENT_LEFT)

    async def _send_json(
        self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> None:
        data = json.dumps(body).encode()
        fields = {"Content-Type": "application/json", "Content-Length": len(data)}
        await self._head(status, {**fields, **(headers or {})})
        await self._write(data)

    async def _head(self, status: int, headers: Mapping[str, object]) -> None:
        known = status in HTTPStatus.__members__.values()
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase if known else 'Other'}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await self._write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def _write(self, data: bytes) -> None:
        try:
            for start in range(0, len(data), _SEND_BYTES):
                self._writer.write(data[start : start + _SEND_BYTES])
                await self._writer.drain()
        except ConnectionError as error:
            raise _OverError(_CLIENT_LEFT) from error


class _Record:
    """Writes the record, a line at a time."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._n = 0
        self._connections = 0

    def connected(self) -> int:
        """Count a connection; its number."""
        self._connections += 1
        return self._connections - 1

    def arrived(self, request: _Request, connection: int) -> int:
        """Note a request; its number."""
        self._n += 1
        n = self._n - 1
        about = asdict(request, recurse=False)
        self._write(n=n, at=time.monotonic(), connection=connection, **about)
        return n

    def over(self, n: int, outcome: str) -> None:
        """Note how a request ended."""
        self._write(n=n, at=time.monotonic(), outcome=outcome)

    def _write(self, **line: object) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


def read_script(path: Path) -> Script:
    """A script from a file: YAML if its name ends like that, else JSON."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".yaml", ".yml"):
        import yaml

        script: Script = yaml.safe_load(text)
        return script
    return json.loads(text)  # type: ignore[no-any-return]


async def serve(
    script: Script, *, wire: Wire, port: int, record: TextIO | None, with_parent: bool
) -> None:
    """Serve on the loopback interface until SIGTERM, SIGINT or, if requested, the end of stdin."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if with_parent:
        loop.add_reader(sys.stdin.fileno(), ended.set)
    player, lines = Player(script), _Record(record)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # At the end, Python 3.11 reports each cancelled handler as an error on stderr.
        with contextlib.suppress(asyncio.CancelledError):
            await _Connection(player, wire, lines, reader, writer).serve()

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1\n")
    sys.stdout.flush()
    await ended.wait()
    server.close()


@frozen(kw_only=True)
class ScriptedServer:
    """A running server."""

    url: str
    """The base URL, as ``http://127.0.0.1:8123/v1``."""
    record: Path

    def _lines(self) -> list[dict[str, Any]]:
        text = self.record.read_text(encoding="utf-8")
        # A line that is still being written has no newline yet.
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def requests(self) -> list[dict[str, Any]]:
        """The requests so far, oldest first: see the record in the module's docstring."""
        return [line for line in self._lines() if "method" in line]

    def outcomes(self) -> list[str]:
        """How finished requests ended, in the order in which they ended."""
        return [line["outcome"] for line in self._lines() if "outcome" in line]

    async def outcome(self, index: int, *, timeout_s: float = 60.0) -> str:
        """How the request at `index` of `outcomes` ended, waiting for its end.

        Raises:
            AssertionError: fewer requests were over by then.
        """
        await until(lambda: len(self.outcomes()) > index, f"the end of request {index}", timeout_s)
        return self.outcomes()[index]


def openai_server(script: Script) -> contextlib.AbstractContextManager[ScriptedServer]:
    """Start the server in a process of its own, and end it.

    Args:
        script: see the module's docstring.
    """
    return scripted_server(script, wire=OPENAI)


@contextlib.contextmanager
def scripted_server(script: Script, *, wire: str) -> Iterator[ScriptedServer]:
    """Start a server of any API in a process of its own, and end it.

    Args:
        script: see the module's docstring.
        wire: ``module:Name`` of a class derived from `ale.testing.wire.Wire`.
    """
    with tempfile.TemporaryDirectory(prefix="ale-openai-") as folder:
        path, record = Path(folder) / "script.json", Path(folder) / "record.jsonl"
        path.write_text(json.dumps(script), encoding="utf-8")
        record.touch()
        command = [sys.executable, "-m", "ale.testing.openai_server", "--with-parent"]
        command += ["--script", str(path), "--record", str(record), "--wire", wire]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        ) as process:
            try:
                assert process.stdout is not None
                url = process.stdout.readline().strip()
                if not url:
                    raise RuntimeError(f"the server did not start (exit code {process.wait()})")
                yield ScriptedServer(url=url, record=record)
            finally:
                process.terminate()


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m ale.testing.openai_server")
    parser.add_argument("--script", type=Path, required=True, help="JSON or YAML")
    parser.add_argument("--wire", default=OPENAI, help="another API, as module:Name")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--record", type=Path, help="file for what arrives, as JSON lines")
    parser.add_argument("--with-parent", action="store_true", help="end when stdin ends")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        record = None
        if options.record is not None:
            record = stack.enter_context(options.record.open("w", encoding="utf-8"))
        script = read_script(options.script)
        module, _, name = options.wire.partition(":")
        wire = getattr(importlib.import_module(module), name)()
        asyncio.run(
            serve(
                script,
                wire=wire,
                port=options.port,
                record=record,
                with_parent=options.with_parent,
            )
        )


if __name__ == "__main__":
    main()
