"""An E2B service of this machine: REST by hand, commands by the SDK's own stubs, in bubblewrap.

`python fake_service.py FOLDER` listens on a free port of the loopback address and prints it; see
`ale_sandboxing.remote.testing.services`.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import uvicorn
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.process import process_pb as pb
from e2b.envd.process.process_connect import Process, ProcessASGIApplication
from protobuf import Oneof

from ale_sandboxing.remote.testing.boxes import FAILED, STDOUT, Box, BoxGoneError, exit_code
from ale_sandboxing.remote.testing.services import Faults, until_terminated

KEY = "the-fake-key"
GONE = "The sandbox was not found"
REASONS = {"FileNotFoundError": 404, "IsADirectoryError": 400}


class E2bBox(Box):
    """One sandbox, with what was asked for."""

    def __init__(self, folder: Path, wanted: dict[str, Any], starts_in_s: float) -> None:
        self.metadata = wanted.get("metadata", {})
        self.template = wanted["templateID"]
        super().__init__(
            folder,
            wanted.get("envVars", {}),
            connected=wanted.get("allow_internet_access") is True,
            starts_in_s=starts_in_s,
        )

    def listed(self) -> dict[str, Any]:
        at = datetime.fromtimestamp(self.created, UTC).isoformat()
        about = {"templateID": self.template, "sandboxID": self.id, "clientID": "c"}
        sizes = {"cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024, "envdVersion": "0.7.0"}
        times = {"startedAt": at, "endAt": at, "state": "running"}
        return {**about, **sizes, **times, "metadata": self.metadata}


class Service(Process):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boxes: dict[str, E2bBox] = {}
        self.requests: dict[str, E2bBox] = {}
        self.faults = Faults(folder)
        self.envd = ProcessASGIApplication(self)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Each request is for the service's API or, by its header, for one sandbox."""
        if scope["type"] != "http":
            return
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        if scope["path"].startswith("/process.Process/"):
            await self.envd(scope, receive, send)
            return
        status, answer = await self.answer(scope, headers, await body_of(receive))
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        kind = b"application/octet-stream" if isinstance(answer, bytes) else b"application/json"
        about = [(b"content-type", kind), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": status, "headers": about})
        await send({"type": "http.response.body", "body": content})

    async def answer(self, scope: Any, headers: Any, body: bytes) -> tuple[int, Any]:
        method, path = scope["method"], scope["path"]
        query = {
            name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()
        }
        if path == "/health":
            box = self.boxes.get(headers["e2b-sandbox-id"])
            return (204, b"") if box is not None and box.running else (502, error(502, GONE))
        if path == "/files":
            return await self.file(method, headers["e2b-sandbox-id"], query, body)
        if headers.get("x-api-key") != KEY:
            self.faults.record("wrong key")
            return 401, error(401, "unknown key")
        if (method, path) == ("POST", "/v2/sandboxes"):
            return await self.create(json.loads(body), headers["idempotency-key"])
        if (method, path) == ("GET", "/v2/sandboxes"):
            return self.listed(query.get("metadata", ""))
        return await self.delete(path.removeprefix("/sandboxes/"))

    # ---- what goes wrong

    def lost(self, name: str, **about: Any) -> int:
        """Record a call; 1 where it is to be lost before it acts, 2 after that, else 0."""
        self.faults.record(name, **about)
        if not self.faults.loses(name):
            return 0
        return self.faults.random.choice([1, 2])

    # ---- lifecycle

    async def create(self, wanted: dict[str, Any], request: str) -> tuple[int, Any]:
        lost = self.lost("create", wanted=wanted)
        faults = self.faults.now()
        if lost == 1:
            return 503, error(503, "a fault of the fake service")
        box = self.requests.get(request)
        if box is None:
            if faults.get("refuse"):
                return 400, error(400, faults["refuse"])
            quota = faults.get("quota")
            if quota is not None and sum(not box.gone for box in self.boxes.values()) >= quota:
                self.faults.record("over quota")
                return 429, error(429, "you have reached the maximum number of sandboxes")
            box = E2bBox(self.folder, wanted, faults.get("starts_in_s", 0))
            self.requests[request] = self.boxes[box.id] = box
            await box.start()
            self.faults.record("made")
            loop = asyncio.get_running_loop()
            loop.call_later(wanted["timeout"], lambda: asyncio.ensure_future(box.end()))
        while not (box.running or box.gone):  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.02)
        if lost == 2:
            return 503, error(503, "a fault of the fake service")
        about = {"sandboxID": box.id, "templateID": box.template, "clientID": "c"}
        return 201, {**about, "envdVersion": "0.7.0", "envdAccessToken": f"token-of-{box.id}"}

    def listed(self, metadata: str) -> tuple[int, Any]:
        if self.lost("list"):
            return 503, error(503, "a fault of the fake service")
        wanted = {unquote(name): unquote(values[0]) for name, values in parse_qs(metadata).items()}
        boxes = [box for box in self.boxes.values() if not box.gone]
        return 200, [box.listed() for box in boxes if wanted.items() <= box.metadata.items()]

    async def delete(self, id: str) -> tuple[int, Any]:
        lost = self.lost("delete", id=id)
        box = self.boxes.get(id)
        if lost != 1 and box is not None and not box.gone:
            await box.end()
            return (503, error(503, "a fault of the fake service")) if lost else (204, b"")
        return (503, error(503, "a fault")) if lost else (404, error(404, "no such sandbox"))

    # ---- data

    async def file(
        self, method: str, id: str, query: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        lost = self.lost("read" if method == "GET" else "write")
        box = self.boxes.get(id)
        if box is None or not box.running:
            return 502, error(502, GONE)
        if lost == 1:
            return 500, error(500, "a fault of the fake service")
        path = query["path"]
        try:
            if method == "GET":
                kind, answer = await box.file(do="read", path=path)
            else:
                kind, answer = await box.file(body, do="write", path=path, size=len(body))
        except BoxGoneError:
            return 502, error(502, GONE)
        if lost == 2:
            return 500, error(500, "a fault of the fake service")
        if kind == FAILED:
            status = REASONS.get(answer.decode(), 400)
            return status, error(status, answer.decode())
        if method == "GET":
            return 200, answer
        return 200, [{"name": Path(path).name, "path": path, "type": "file"}]

    async def start(self, request: pb.StartRequest, ctx: Any, /) -> AsyncIterator[pb.StartResponse]:
        headers = {name.lower(): value for name, value in ctx.request_headers.items()}
        assert request.process is not None
        lost = self.lost("exec", user=headers.get("authorization"))
        box = self.boxes.get(headers["e2b-sandbox-id"])
        if box is None or not box.running:
            raise ConnectError(Code.UNAVAILABLE, GONE)
        assert headers["x-access-token"] == f"token-of-{box.id}"
        if lost == 1:
            raise ConnectError(Code.UNAVAILABLE, "a fault of the fake service")
        cut = self.faults.random.randrange(2) if lost else 2
        yield event("start", pb.ProcessEvent.StartEvent(pid=77))
        argv = [request.process.cmd, *request.process.args]
        try:
            async for kind, data in box.execute(argv):
                if cut == 0:
                    raise ConnectError(Code.INTERNAL, "a fault of the fake service")
                if kind == 0:
                    if cut == 1:
                        raise ConnectError(Code.UNAVAILABLE, "a fault of the fake service")
                    code = exit_code(data)
                    end = pb.ProcessEvent.EndEvent(exit_code=code, exited=True, status="exited")
                    yield event("end", end)
                else:
                    stream = "stdout" if kind == STDOUT else "stderr"
                    output = pb.ProcessEvent.DataEvent(output=Oneof(stream, data))
                    yield event("data", output)
        except BoxGoneError as gone:
            raise ConnectError(Code.UNAVAILABLE, GONE) from gone


def event(name: Any, value: Any) -> pb.StartResponse:
    return pb.StartResponse(event=pb.ProcessEvent(event=Oneof(name, value)))


def error(code: int, message: str) -> dict[str, Any]:
    return {"code": code, "message": message}


async def body_of(receive: Any) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def main(folder: Path) -> None:
    service = Service(folder)
    config = uvicorn.Config(service, "127.0.0.1", 0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110  nothing tells
        await asyncio.sleep(0.01)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await until_terminated()
    for box in service.boxes.values():
        await box.end()
    server.should_exit = True
    server.force_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
