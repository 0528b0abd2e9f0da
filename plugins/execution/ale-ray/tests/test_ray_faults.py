"""What nobody awaits in the executor ``ray`` ends the run with its reason, and is not lost."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ale.errors import AleError
from ale.protocols import RunningRun
from ale.testing.executor import LIMIT_S, job, spec_of
from ale.types import Episode, Job, Stage
from ale.workers import encode
from ale_ray.actor import FAILED, Rollouts
from ale_ray.executor import RayExecutor
from ale_ray.options import RayOptions

pytestmark = pytest.mark.filterwarnings("ignore")


async def not_here(job: Job) -> Episode:
    raise AssertionError("it runs on the cluster")


async def test_an_error_in_taking_results_ends_the_run_with_it(
    cluster: Any, tmp_path: Path
) -> None:
    def on_stage(job: Job, stage: Stage) -> None:
        raise RuntimeError(f"cannot show {stage}")

    run = RunningRun(
        spec=spec_of(tmp_path, "faults"),
        concurrency=1,
        run_here=not_here,
        on_stage=on_stage,
        report=print,
    )
    executor = RayExecutor(RayOptions(address=cluster.address, resource="one"))
    async with executor.open(run) as workers:
        with pytest.raises(RuntimeError, match="cannot show"):
            await asyncio.wait_for(workers.run(job("a")), LIMIT_S)
        with pytest.raises(RuntimeError, match="cannot show"):
            await workers.run(job("b"))


async def test_a_job_that_an_actor_can_not_read_comes_back_with_the_reason(
    tmp_path: Path,
) -> None:
    actor = Rollouts()
    assert await actor.build(encode(spec_of(tmp_path, "faults"))) == ""
    await actor.submit({7: b"{}"})
    (message,) = await asyncio.wait_for(anext(actor.results()), LIMIT_S)
    assert message[:2] == (7, FAILED)
    assert b"missing required field" in message[2]
    assert await actor.close() == []


async def test_so_it_does_to_the_run(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(record: Any) -> bytes:
        return b"{}" if isinstance(record, Job) else encode(record)

    monkeypatch.setattr("ale_ray.executor.encode", unreadable)
    run = RunningRun(
        spec=spec_of(tmp_path, "unreadable"),
        concurrency=1,
        run_here=not_here,
        on_stage=lambda job, stage: None,
        report=print,
    )
    executor = RayExecutor(RayOptions(address=cluster.address, resource="one"))
    async with executor.open(run) as workers:
        episode = await asyncio.wait_for(workers.run(job("a")), LIMIT_S)
    assert episode is not None
    assert episode.failure is not None
    assert "missing required field" in episode.failure.message


async def test_a_job_that_is_cancelled_before_it_is_sent_is_not_run(
    cluster: Any, tmp_path: Path
) -> None:
    run = RunningRun(
        spec=spec_of(tmp_path, "withdrawn"),
        concurrency=2,
        run_here=not_here,
        on_stage=lambda job, stage: None,
        report=print,
    )
    executor = RayExecutor(RayOptions(address=cluster.address, resource="one"))
    ran = tmp_path / "ran"
    async with executor.open(run) as workers:
        await asyncio.wait_for(workers.run(job("a")), LIMIT_S)  # the actor is ready
        asked = asyncio.ensure_future(workers.run(job("b", f"touch {ran}")))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await asyncio.wait_for(workers.run(job("c")), LIMIT_S)
    assert not ran.exists()


async def test_a_job_that_waits_for_a_node_is_withdrawn_and_in_the_end_given_up(
    cluster: Any, tmp_path: Path
) -> None:
    run = RunningRun(
        spec=spec_of(tmp_path, "nowhere"),
        concurrency=2,
        run_here=not_here,
        on_stage=lambda job, stage: None,
        report=print,
    )
    options = RayOptions(address=cluster.address, resource="absent", give_up_s=3.0)
    async with RayExecutor(options).open(run) as workers:
        with pytest.raises(AleError, match=r"no node with 'absent' of the Ray .* for 3 s"):
            await asyncio.wait_for(workers.run(job("a")), LIMIT_S)
    async with RayExecutor(evolve(options, give_up_s=600.0)).open(run) as workers:
        asked = asyncio.ensure_future(workers.run(job("b")))
        await asyncio.sleep(0)
        workers.drain()
        assert await asyncio.wait_for(asked, LIMIT_S) is None
        assert await asyncio.wait_for(workers.run(job("c")), LIMIT_S) is None
