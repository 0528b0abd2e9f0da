"""A session's shell, seen from the host, without a container."""

from pathlib import Path

import pytest

from ale_sandbox_container.pipes import PipeFolder
from ale_sandbox_container.shell import ContainerShell
from ale_sandbox_container.worker import Job
from ale_sandbox_shell.output import Drains


@pytest.mark.asyncio
async def test_a_shell_that_was_ended_knows_it_at_once(tmp_path: Path) -> None:
    """The job's end may come in the same turn of the event loop as what waits for it."""
    pipes = PipeFolder(tmp_path / "pipes")
    pipes.make()
    shell, job = ContainerShell(pipes, Drains().finish), Job()

    async def end() -> None:
        job.end((143,))

    shell.attach(job, end=end, closed=lambda: False)
    await shell.end()
    assert shell.ended.done()
    assert shell.ended.result() == 143
