"""A CoreWeave Sandbox service of this machine: the SDK's own stubs, commands in bubblewrap.

`python fake_service.py FOLDER` listens on a free port of the loopback address, prints it, and
writes what it was asked to FOLDER/calls. FOLDER/faults, where it is there, says what goes wrong.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from cwsandbox._proto import sandbox_pb2 as pb
from cwsandbox._proto import sandbox_pb2_grpc
from google.rpc import error_details_pb2, status_pb2

from ale_sandboxing.remote.testing.boxes import FAILED, Box, BoxGoneError, exit_code
from ale_sandboxing.remote.testing.services import Faults, until_terminated

KEYS = {"authorization": "Bearer the-fake-key", "x-wandb-api-key": "0123456789" * 4}


class CwBox(Box):
    """One sandbox, with what was asked for."""

    def __init__(self, folder: Path, wanted: pb.Sandbox, starts_in_s: float) -> None:
        self.spec = wanted.spec
        container = self.spec.containers[0]
        memory = container.resource_requirements.limits.memory
        super().__init__(
            folder,
            container.environment_variables,
            connected=any(rule.any for rule in self.spec.network.egress),
            memory=int(memory.removesuffix("Mi")) << 20 if memory else 0,
            starts_in_s=starts_in_s,
        )

    @property
    def state(self) -> int:
        if self.gone:
            return pb.STATE_TERMINATED
        return pb.STATE_RUNNING if self.running else pb.STATE_CREATING

    def message(self) -> pb.Sandbox:
        shown = pb.Sandbox(sandbox_id=self.id, spec=self.spec)
        shown.status.state = self.state
        shown.status.create_time.FromSeconds(int(self.created))
        return shown


class Service(sandbox_pb2_grpc.SandboxServiceServicer):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boxes: dict[str, CwBox] = {}
        self.requests: dict[str, CwBox] = {}
        self.faults = Faults(folder)
        self.random = self.faults.random

    # ---- what goes wrong

    async def begin(self, name: str, context: Any, **about: Any) -> bool:
        """Record a call; True where its answer is to be lost."""
        given = dict(context.invocation_metadata())
        if not any(given.get(name) == key for name, key in KEYS.items()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "unknown key")
        self.faults.record(name, **about, entity=given.get("x-entity-id"))
        if not self.faults.loses(name):
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
            faults = self.faults.now()
            if faults.get("refuse"):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, faults["refuse"])
            quota = faults.get("quota")
            if quota is not None and sum(not box.gone for box in self.boxes.values()) >= quota:
                self.faults.record("over quota")
                if faults.get("busy"):
                    await refuse(context, grpc.StatusCode.UNAVAILABLE, "RUNNER_CAPACITY_EXHAUSTED")
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "quota of sandboxes")
            box = CwBox(self.folder, request.sandbox, faults.get("starts_in_s", 0))
            self.requests[request.request_id] = self.boxes[box.id] = box
            await box.start()
            self.faults.record("made")
            if box.spec.max_lifetime_seconds:
                loop = asyncio.get_running_loop()
                loop.call_later(
                    box.spec.max_lifetime_seconds, lambda: asyncio.ensure_future(box.end())
                )
        if lost:
            await self.lose(context)
        return box.message()

    async def find(self, id: str, context: Any) -> CwBox:
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

    async def running(self, request: Any, context: Any) -> CwBox:
        box = await self.find(request.sandbox_id, context)
        if box.state != pb.STATE_RUNNING:
            code = grpc.StatusCode.FAILED_PRECONDITION if box.gone else grpc.StatusCode.UNAVAILABLE
            await context.abort(code, "the sandbox does not run")
        return box

    async def StreamExec(self, requests: Any, context: Any) -> AsyncIterator[pb.ExecStreamResponse]:
        init = (await anext(aiter(requests))).init
        lost = await self.begin("exec", context, action=init.command[4:5])
        box = await self.running(init, context)
        cut = self.random.randrange(3) if lost else 3
        try:
            yield pb.ExecStreamResponse(ready=pb.ExecStreamReady())
            async for kind, data in box.execute(list(init.command)):
                if cut in (0, 1):
                    await self.lose(context)
                if kind == 0:
                    if cut == 2:
                        return  # ends without an exit code
                    code = exit_code(data)
                    yield pb.ExecStreamResponse(exit=pb.ExecStreamExit(exit_code=code))
                elif kind == FAILED:
                    error = pb.ExecStreamError(message=data.decode(), code="START_FAILED")
                    yield pb.ExecStreamResponse(error=error)
                else:
                    yield pb.ExecStreamResponse(output=pb.ExecStreamOutput(stream=kind, data=data))
        except BoxGoneError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the sandbox has ended")

    async def file(self, box: CwBox, context: Any, data: bytes = b"", **request: Any) -> bytes:
        try:
            kind, answer = await box.file(data, **request)
        except BoxGoneError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the sandbox has ended")
        if kind == FAILED:
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
    service = Service(folder)
    options = [("grpc.max_receive_message_length", 100 << 20)]
    server = grpc.aio.server(options=[*options, ("grpc.max_send_message_length", 100 << 20)])
    sandbox_pb2_grpc.add_SandboxServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await until_terminated()
    for box in service.boxes.values():
        await box.end()
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
