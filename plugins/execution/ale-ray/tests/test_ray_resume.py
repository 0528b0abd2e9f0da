"""A launch of which the node of the run is lost: the run is resumed, each episode once."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ale.protocols import Launch, Process
from ale.testing.executor import episodes_of, write_run
from ale.testing.launcher import alive, script, started, waited
from ale.testing.waiting import until
from ale_ray.launcher import RayLauncher
from ale_ray.options import RayLaunchOptions

from .conftest import STORE
from .test_ray_executor import ancestors
from .test_ray_run import N

pytestmark = pytest.mark.filterwarnings("ignore")


def process_of(name: str, directory: Path) -> int | None:
    """The id of a process of the launch, by its variables."""
    wanted = {f"ALE_PROCESS={name}".encode(), f"ALE_RUN_DIRECTORY={directory}".encode()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted <= {*(entry / "environ").read_bytes().split(b"\0")}:
                return int(entry.name)
        except OSError:
            continue
    return None


async def test_a_lost_node_resumes_the_run_elsewhere(cluster: Any, tmp_path: Path) -> None:
    nodes = [
        cluster.add_node(num_cpus=1, resources={"launch": 1}, object_store_memory=STORE)
        for _ in range(2)  # with the head and that of the other tests, four
    ]
    # From the ninth task on they wait: else a busy machine may end the run before it is lost.
    may_end = tmp_path / "may-end"
    held = f"until test -e {may_end}; do sleep 0.1; done; touch done"
    goals = ["touch done"] * 8 + [held] * (N - 8)
    config = write_run(tmp_path, goals, run={"concurrency": 2})
    (tmp_path / "ids").mkdir()
    directory = tmp_path / "runs" / f"launch-{os.getpid()}"
    command = (sys.executable, "-m", "ale", "run", str(config), "--directory", str(directory))
    launch = Launch(
        name=directory.name,
        directory=directory,
        run=Process(name="run", role="run", command=command, cpus=1),
        others=[script(tmp_path, "work", "worker", "sleep 600", count=2)],
        restarts=2,
    )
    said: list[str] = []
    launcher = RayLauncher(RayLaunchOptions(address=cluster.address, resource="launch", grace_s=5))
    async with started(launcher, launch, said.append) as launched:
        waiting = asyncio.create_task(waited(launched))
        await until(lambda: waiting.done() or len(episodes_of(directory)) >= 3)
        assert not waiting.done(), said
        run = process_of("run", directory)
        assert run is not None
        above = ancestors(run)
        (lost,) = [n for n in nodes if any(p.process.pid in above for p in processes_of(n))]
        cluster.remove_node(lost, allow_graceful=False)
        again = "run was lost with its node: started again"
        await until(lambda: waiting.done() or any(again in each for each in said))
        assert not waiting.done(), said
        may_end.touch()
        assert await waiting == 0, said
    assert sorted(episodes_of(directory)) == sorted(f"0-t{i}-0" for i in range(N))
    assert "holds a run: it is resumed" in launch.log("run").read_text()
    await until(lambda: not alive(tmp_path / "ids"))
    for node in set(nodes) - {lost}:
        cluster.remove_node(node)


def processes_of(node: Any) -> list[Any]:
    return [each for some in node.all_processes.values() for each in some]
