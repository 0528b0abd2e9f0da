"""What a sandbox takes of this process's descriptors, which a run is checked against."""

import asyncio
import contextlib
import os
from pathlib import Path

from ale.plugin import BuildContext
from ale.testing.waiting import until
from ale.types import SandboxSpec
from ale_sandbox_local.backend import LocalBackend
from ale_sandbox_local.options import LocalOptions

_N = 5


def n_open() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_a_sandbox_opens_no_more_than_its_backend_says(tmp_path: Path) -> None:
    backend = LocalBackend(LocalOptions(root=tmp_path), BuildContext(environ=dict(os.environ)))
    async with contextlib.AsyncExitStack() as opened:
        before = n_open()
        boxes = [await opened.enter_async_context(backend.open(SandboxSpec())) for _ in range(_N)]
        for box in boxes:
            await (await box.session()).run("true")
        running = [asyncio.create_task(box.exec("echo > on; sleep 60")) for box in boxes]
        await until(lambda: all((Path(box.workdir) / "on").exists() for box in boxes))
        assert n_open() - before == _N * backend.descriptors
        for task in running:
            task.cancel()
        await asyncio.wait(running)
