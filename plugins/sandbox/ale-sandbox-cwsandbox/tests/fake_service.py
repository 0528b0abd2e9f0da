"""A CoreWeave Sandbox service of this machine: the SDK's own stubs, commands in bubblewrap.

`python fake_service.py FOLDER` listens on a free port of the loopback address, prints it, and
writes what it was asked to FOLDER/calls. FOLDER/faults, where it is there, says what goes wrong.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import struct
import sys
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from cwsandbox._proto import sandbox_pb2 as pb
from cwsandbox._proto import sandbox_pb2_grpc
from google.rpc import error_details_pb2, status_pb2

KEYS = {"authorization": "Bearer the-fake-key", "x-wandb-api-key": "0123456789" * 4}
RUNNER = Path(__file__).with_name("fake_runner.py")
RUNNING = {pb.STATE_CREATING, pb.STATE_RUNNING}


class Box:
    """One sandbox: a folder, and a process in namespaces of its own."""

    def __init__(self, folder: Path, wanted: pb.Sandbox, starts_in_s: float) -> None:
        self.id = f"sb-{uuid.uuid4().hex[:12]}"
        self.folder = folder / self.id
        self.spec = wanted.spec
        self.created = time.time()
        self.running_from = time.monotonic() + starts_in_s
        self.process: asyncio.subprocess.Process | None = None
        self.gone = False

    @property
    def memory(self) -> int:
        wanted = self.spec.containers[0].resource_requirements.limits.memory
        return int(wanted.removesuffix("Mi")) << 20 if wanted else 0

    async def start(self) -> None:
        (self.folder / "runner").mkdir(parents=True)
        root = self.folder / "root"
        for name in ("tmp", "root", "run"):
            (root / name).mkdir(parents=True)
        container = self.spec.containers[0]
        info, told = os.pipe()
        connected = any(rule.any for rule in self.spec.network.egress)
        self.process = await asyncio.create_subprocess_exec(
            "bwrap",
            *("--die-with-parent", "--unshare-all", "--uid", "0", "--gid", "0"),
            *("--info-fd", str(told), *(("--share-net",) if connected else ())),
            *("--bind", str(root), "/", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"),
            *(word for name in ("bin", "sbin", "lib", "lib64") for word in top(name)),
            *("--ro-bind", sys.base_prefix, sys.base_prefix, "--ro-bind", str(RUNNER), "/runner"),
            *("--proc", "/proc", "--dev", "/dev", "--bind", str(self.folder / "runner"), "/run"),
            *(sys.base_prefix + "/bin/python3", "-I", "-S", "/runner", "/run/socket"),
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": "/root",
                **container.environment_variables,
            },
            pass_fds=[told],
        )
        os.close(told)
        with os.fdopen(info) as said:
            self.first = int(json.load(said)["child-pid"])
        while not (self.folder / "runner" / "socket").exists():
            if self.process.returncode is not None:
                raise RuntimeError("bwrap has ended")
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        self.gone = True
        if self.process is None:
            return
        if self.process.returncode is None:
            # The first of its namespace: it is gone when all others are.
            os.kill(self.first, signal.SIGKILL)
        await self.process.wait()
        while Path(f"/proc/{self.first}").exists():  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.01)

    @property
    def state(self) -> int:
        if self.gone:
            return pb.STATE_TERMINATED
        early = self.process is None or time.monotonic() < self.running_from
        return pb.STATE_CREATING if early else pb.STATE_RUNNING

    def message(self) -> pb.Sandbox:
        shown = pb.Sandbox(sandbox_id=self.id, spec=self.spec)
        shown.status.state = self.state
        shown.status.create_time.FromSeconds(int(self.created))
        return shown

    async def ask(self, data: bytes = b"", **request: Any) -> Any:
        path = str(self.folder / "runner" / "socket")
        reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
        writer.write(json.dumps(request).encode() + b"\n" + data)
        await writer.drain()
        return reader, writer


def top(name: str) -> tuple[str, ...]:
    path = Path("/") / name
    if path.is_symlink():
        return ("--symlink", str(path.readlink()), f"/{name}")
    return ("--ro-bind", f"/{name}", f"/{name}") if path.exists() else ()


class Service(sandbox_pb2_grpc.SandboxServiceServicer):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boxes: dict[str, Box] = {}
        self.requests: dict[str, Box] = {}
        self.random = random.Random(7)
        self.calls = (folder / "calls").open("a")

    # ---- what goes wrong

    def faults(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / "faults").read_text()))
        except FileNotFoundError:
            return {}

    async def begin(self, name: str, context: Any, **about: Any) -> bool:
        """Record a call; True where its answer is to be lost."""
        given = dict(context.invocation_metadata())
        if not any(given.get(name) == key for name, key in KEYS.items()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "unknown key")
        about["entity"] = given.get("x-entity-id")
        self.calls.write(json.dumps({"call": name, **about}) + "\n")
        self.calls.flush()
        faults = self.faults()
        if name in faults.get("never", ()) or self.random.random() >= faults.get("share", 0):
            return False
        if self.random.random() < 0.5:
            await self.lose(context)
        return True

    async def lose(self, context: Any) -> None:
        code = self.random.choice([grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED])
        await context.abort(code, "a fault of the fake service")

    # ---- lifecycle

    async def CreateSandbox(self, request: Any, context: Any) -> pb.Sandbox:
        lost = await self.begin(
            "create",
            context,
            image=request.sandbox.spec.containers[0].image,
            spec=str(request.sandbox.spec),
        )
        box = self.requests.get(request.request_id)
        if box is None:
            faults = self.faults()
            if faults.get("refuse"):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, faults["refuse"])
            quota = faults.get("quota")
            if quota is not None and sum(not box.gone for box in self.boxes.values()) >= quota:
                self.calls.write(json.dumps({"call": "over quota"}) + "\n")
                if faults.get("busy"):
                    await refuse(context, grpc.StatusCode.UNAVAILABLE, "RUNNER_CAPACITY_EXHAUSTED")
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "quota of sandboxes")
            box = Box(self.folder, request.sandbox, faults.get("starts_in_s", 0))
            self.requests[request.request_id] = self.boxes[box.id] = box
            await box.start()
            self.calls.write(json.dumps({"call": "made"}) + "\n")
            self.calls.flush()
            if box.spec.max_lifetime_seconds:
                loop = asyncio.get_running_loop()
                loop.call_later(
                    box.spec.max_lifetime_seconds, lambda: asyncio.ensure_future(box.end())
                )
        if lost:
            await self.lose(context)
        return box.message()

    async def find(self, id: str, context: Any) -> Box:
        box = self.boxes.get(id)
        if box is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no sandbox {id}")
        return box

    async def GetSandbox(self, request: Any, context: Any) -> pb.Sandbox:
        if await self.begin("get", context):
            await self.lose(context)
        return (await self.find(request.sandbox_id, context)).message()

    async def ListSandboxes(self, request: Any, context: Any) -> pb.ListSandboxesResponse:
        if await self.begin("list", context):
            await self.lose(context)
        found = [
            box.message()
            for box in self.boxes.values()
            if not box.gone and set(request.tags) <= set(box.spec.tags)
        ]
        return pb.ListSandboxesResponse(sandboxes=found)

    async def DeleteSandbox(self, request: Any, context: Any) -> pb.DeleteSandboxResponse:
        lost = await self.begin("delete", context, id=request.sandbox_id)
        box = self.boxes.get(request.sandbox_id)
        if (box is None or box.gone) and not request.allow_missing:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such sandbox")
        answer = pb.DeleteSandboxResponse()
        if box is not None and not box.gone:
            await box.end()
            answer.sandbox.CopyFrom(box.message())
        if lost:
            await self.lose(context)
        return answer

    # ---- data

    async def running(self, request: Any, context: Any) -> Box:
        box = await self.find(request.sandbox_id, context)
        if box.state != pb.STATE_RUNNING:
            code = grpc.StatusCode.FAILED_PRECONDITION if box.gone else grpc.StatusCode.UNAVAILABLE
            await context.abort(code, "the sandbox does not run")
        return box

    async def StreamExec(self, requests: Any, context: Any) -> AsyncIterator[pb.ExecStreamResponse]:
        init = (await anext(aiter(requests))).init
        lost = await self.begin("exec", context, action=init.command[4:5])
        box = await self.running(init, context)
        reader, writer = await box.ask(do="exec", argv=list(init.command), memory=box.memory)
        cut = self.random.randrange(3) if lost else 3
        try:
            yield pb.ExecStreamResponse(ready=pb.ExecStreamReady())
            while True:
                if cut == 0:
                    await self.lose(context)
                kind, size = struct.unpack(">BI", await reader.readexactly(5))
                data = await reader.readexactly(size)
                if cut == 1:
                    await self.lose(context)
                if kind == 0:
                    if cut == 2:
                        return  # ends without an exit code
                    code = struct.unpack(">i", data)[0]
                    yield pb.ExecStreamResponse(exit=pb.ExecStreamExit(exit_code=code))
                    return
                if kind == 3:
                    error = pb.ExecStreamError(message=data.decode(), code="START_FAILED")
                    yield pb.ExecStreamResponse(error=error)
                    return
                yield pb.ExecStreamResponse(output=pb.ExecStreamOutput(stream=kind, data=data))
        except asyncio.IncompleteReadError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the sandbox has ended")
        finally:
            writer.close()

    async def file(self, box: Box, context: Any, data: bytes = b"", **request: Any) -> bytes:
        reader, writer = await box.ask(data, **request)
        with contextlib.closing(writer):
            try:
                kind, size = struct.unpack(">BI", await reader.readexactly(5))
                answer = bytes(await reader.readexactly(size))
            except asyncio.IncompleteReadError:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the sandbox has ended")
        if kind == 3:
            reason = REASONS.get(answer.decode(), "FILE_IO_FAILED")
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, reason)
        return answer

    async def ReadFile(self, request: Any, context: Any) -> pb.ReadFileResponse:
        lost = await self.begin("read", context)
        box = await self.running(request, context)
        content = await self.file(box, context, do="read", path=request.path)
        if lost:
            await self.lose(context)
        return pb.ReadFileResponse(content=content)

    async def WriteFile(self, request: Any, context: Any) -> pb.WriteFileResponse:
        lost = await self.begin("write", context)
        box = await self.running(request, context)
        size = len(request.content)
        await self.file(box, context, request.content, do="write", path=request.path, size=size)
        if lost:
            await self.lose(context)
        return pb.WriteFileResponse()


REASONS = {"FileNotFoundError": "FILE_NOT_FOUND", "IsADirectoryError": "FILE_IS_DIRECTORY"}


async def refuse(context: Any, code: grpc.StatusCode, reason: str) -> None:
    """As the service does: with a reason in the details."""
    status = status_pb2.Status(code=code.value[0], message=reason)
    info = error_details_pb2.ErrorInfo(reason=f"CWSANDBOX_{reason}", domain="cwsandbox.com")
    status.details.add().Pack(info)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    await context.abort(code, reason)


async def main(folder: Path) -> None:
    # Where it was started in the background, SIGINT is ignored, and no shell could change that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    service = Service(folder)
    options = [("grpc.max_receive_message_length", 100 << 20)]
    server = grpc.aio.server(options=[*options, ("grpc.max_send_message_length", 100 << 20)])
    sandbox_pb2_grpc.add_SandboxServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    for box in service.boxes.values():
        await box.end()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
