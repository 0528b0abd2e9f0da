"""The launcher ``torchrun``: what an earlier start has left names no process of the next one."""

import asyncio
from pathlib import Path

import pytest

from ale.protocols import Launch, Process
from ale_launch.options import TorchrunOptions
from ale_launch.torchrun import TorchrunLauncher
from ale_processes.torchrun import record_of


async def test_a_killed_torchrun_is_started_again_without_the_record_of_its_rank_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Process(name="run", role="run", command=("ale",), ranks=2, rank_command=("ale",))
    launch = Launch(name="r", directory=tmp_path / "r", run=run, restarts=1)
    record, starts = record_of(launch), tmp_path / "starts"
    text = (
        f"test -e {record} && echo stale >> {starts} || echo new >> {starts}; "
        f"test $(wc -l < {starts}) = 2 && exit 0; echo '{{}}' > {record}; kill -KILL $$"
    )
    command = ("bash", "-c", text)
    monkeypatch.setattr("ale_launch.torchrun.torchrun", lambda *_, **__: command)
    supervised = await TorchrunLauncher(TorchrunOptions(grace_s=1)).start(launch, print)
    assert await asyncio.wait_for(supervised.wait(), 60) == 0
    assert starts.read_text() == "new\nnew\n"
