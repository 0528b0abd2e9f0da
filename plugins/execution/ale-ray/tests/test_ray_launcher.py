"""The launcher ``ray`` on a real cluster: the contract of launchers."""

from pathlib import Path
from typing import Any

import pytest

from ale.errors import LaunchError
from ale.protocols import Launch, Launcher, Process
from ale.testing.launcher import LauncherContract, started
from ale_ray.launcher import RayLauncher
from ale_ray.options import RayLaunchOptions

pytestmark = pytest.mark.filterwarnings("ignore")


class TestRayLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self, cluster: Any) -> Launcher:
        options = RayLaunchOptions(address=cluster.address, resource="one", grace_s=1)
        return RayLauncher(options)


def test_a_plan_says_what_is_reserved_and_needs_no_cluster(tmp_path: Path) -> None:
    server = Process(name="s", role="server", command=("serve",), count=2, cpus=4, gpus=1)
    rank = ("python", "-m", "ranks")
    run = Process(
        name="run", role="run", command=("ale",), cpus=2, gpus=1, ranks=8, rank_command=rank
    )
    launch = Launch(name="r", directory=tmp_path, run=run, others=[server], nodes=2)
    text = RayLauncher(RayLaunchOptions(resource="big", strategy="pack")).plan(launch)
    assert "strategy: pack" in text
    assert "run (run): 8 CPU, 4 GPU, 0.001 big; 8 CPU, 4 GPU, 0.001 big, log run.log" in text
    assert "s-1 (server): 4 CPU, 1 GPU, 0.001 big, log s-1.log" in text


async def test_no_room_is_said_and_ends_the_launch(cluster: Any, tmp_path: Path) -> None:
    run = Process(name="run", role="run", command=("true",), cpus=64)
    launch = Launch(name="r", directory=tmp_path / "r", run=run)
    said: list[str] = []
    ray = RayLauncher(RayLaunchOptions(address=cluster.address, resource="one", give_up_s=1))
    async with started(ray, launch, said.append) as launched:
        with pytest.raises(LaunchError, match="no room for run in 1 s"):
            await launched.wait()
    assert said == ["run waits for room: 64 CPU, 0.001 one"]
