"""`ale run` on several nodes: one is lost, the run is killed, and each episode is there once."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ale.testing.executor import episodes_of, write_run
from ale.testing.waiting import wait_for
from ale_ray.cluster import NAMESPACE

from .conftest import STORE

pytestmark = pytest.mark.filterwarnings("ignore")
N = 24


def actors(run_id: str) -> list[str]:
    import ray

    named = ray.util.list_named_actors(all_namespaces=True)
    assert all(entry["namespace"] == NAMESPACE for entry in named)
    return [entry["name"] for entry in named if entry["name"].startswith(f"{run_id}/")]


def test_a_lost_node_and_a_killed_run_lose_and_repeat_no_episode(
    cluster: Any, tmp_path: Path
) -> None:
    nodes = [
        cluster.add_node(num_cpus=1, resources={"many": 1}, object_store_memory=STORE)
        for _ in range(2)
    ]
    executor = {"type": "ray", "address": cluster.address, "resource": "many"}
    goals = ["sleep 0.5; touch done"] * N
    config = write_run(tmp_path, goals, executor=executor, run={"concurrency": 2})
    directory = tmp_path / "runs" / f"ray-{os.getpid()}"
    command = [sys.executable, "-m", "ale", "run", str(config), "--directory", str(directory)]
    with subprocess.Popen(command, cwd=tmp_path, text=True) as run:
        wait_for(
            lambda: len(episodes_of(directory)) >= 3 and len(actors(directory.name)) == 2,
            limit_s=120,
        )
        cluster.remove_node(nodes[0], allow_graceful=False)
        events = directory / "events.jsonl"
        wait_for(lambda: "of the Ray cluster was lost" in events.read_text())
        n = len(episodes_of(directory))
        wait_for(lambda: len(episodes_of(directory)) >= n + 2)
        run.send_signal(signal.SIGKILL)
    assert len(episodes_of(directory)) < N
    assert len(actors(directory.name)) == 1, "an actor outlives a killed run"
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 actors of an earlier session of this run were ended" in done.stderr
    assert sorted(episodes_of(directory)) == sorted(f"0-t{i}-0" for i in range(N))
    assert actors(directory.name) == []
    cluster.remove_node(nodes[1])
