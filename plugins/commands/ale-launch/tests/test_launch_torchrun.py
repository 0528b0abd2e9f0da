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


def on_two_hosts(folder: Path, node: int) -> str:
    """The plan of one of two machines, each with four ranks, and of the server beside them."""
    run = Process(name="run", role="run", command=("ale",), ranks=8, gpus=1, rank_command=("r",))
    server = Process(name="s", role="server", command=("serve",))
    launch = Launch(name="r", directory=folder, run=run, others=[server], nodes=2, restarts=3)
    options = TorchrunOptions(
        rendezvous="10.0.0.1:29500",
        address=f"10.0.0.{node + 1}",
        node=node,
        gpus_here=tuple("abcd"),
    )
    return TorchrunLauncher(options).plan(launch)


def test_each_of_several_machines_has_its_share_of_the_ranks_and_meets_the_others(
    tmp_path: Path,
) -> None:
    for node in (0, 1):
        plan = on_two_hosts(tmp_path, node)
        assert "GPUs a,b,c,d" in plan, "those of four ranks"
        assert "--nproc-per-node 4 --max-restarts 3" in plan
        assert "--nnodes 2 --rdzv-id r --rdzv-backend c10d --rdzv-endpoint 10.0.0.1:29500" in plan
        assert f"--local-addr 10.0.0.{node + 1}" in plan


def test_the_first_machine_has_the_meeting_place_and_what_is_beside_the_run(tmp_path: Path) -> None:
    first, second = (on_two_hosts(tmp_path, node) for node in (0, 1))
    assert "--rdzv-conf is_host=1" in first
    assert "--rdzv-conf" not in second
    assert "s (server)" in first
    assert "s (server)" not in second
    assert "run-1 (run)" in second


async def test_the_status_is_the_one_that_rank_0_has_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Process(name="run", role="run", command=("ale",), ranks=2, rank_command=("ale",))
    launch = Launch(name="r", directory=tmp_path / "r", run=run)
    command = ("bash", "-c", f"echo '{{\"status\": 3}}' > {record_of(launch)}")
    monkeypatch.setattr("ale_launch.torchrun.torchrun", lambda *_, **__: command)
    supervised = await TorchrunLauncher(TorchrunOptions(grace_s=1)).start(launch, print)
    assert await asyncio.wait_for(supervised.wait(), 60) == 3
