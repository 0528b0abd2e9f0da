"""`ale run` on several nodes: one is lost, the run is killed, and each episode is there once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ale.testing.executor import PARTS
from ale_ray.cluster import NAMESPACE

from .conftest import STORE

pytestmark = pytest.mark.filterwarnings("ignore")
N = 24
MORE_PARTS = """
from ale.testing.fakes import FakeChunker, FakeCreditScheme
from ale.types import CriterionSpec, Task


class Source:
    def load(self):
        done = (CriterionSpec(type="kit-done"),)
        return [Task(id=f"t{i}", goal="sleep 0.5; touch done", criteria=done) for i in range(24)]


@hookimpl
def ale_task_sources():
    return [Component("kit-tasks", None, lambda o, c: Source(), summary="Tasks.")]


@hookimpl
def ale_chunkers():
    return [Component("kit-chunker", None, lambda o, c: FakeChunker(), summary="A fake.")]


@hookimpl
def ale_credit_schemes():
    return [Component("kit-credit", None, lambda o, c: FakeCreditScheme(), summary="A fake.")]
"""


def config_of(folder: Path, executor: dict[str, Any]) -> Path:
    (folder / "parts.py").write_text(PARTS + MORE_PARTS)
    sections = {
        "plugins": ["parts.py"],
        "tasks": {"type": "kit-tasks"},
        "sandbox": {"type": "kit-folder"},
        "agent": {"type": "kit-agent"},
        "chunker": {"type": "kit-chunker"},
        "credit": {"type": "kit-credit"},
        "executor": {"type": "ray", **executor},
        "observers": [],
        "run": {"concurrency": 2},
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(sections))
    return path


def episodes(directory: Path) -> list[str]:
    path = directory / "episodes.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["id"] for line in lines]


def actors(run_id: str) -> list[str]:
    import ray

    named = ray.util.list_named_actors(all_namespaces=True)
    assert all(entry["namespace"] == NAMESPACE for entry in named)
    return [entry["name"] for entry in named if entry["name"].startswith(f"{run_id}/")]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def test_a_lost_node_and_a_killed_run_lose_and_repeat_no_episode(
    cluster: Any, tmp_path: Path
) -> None:
    nodes = [
        cluster.add_node(num_cpus=1, resources={"many": 1}, object_store_memory=STORE)
        for _ in range(2)
    ]
    config = config_of(tmp_path, {"address": cluster.address, "resource": "many"})
    directory = tmp_path / "runs" / f"ray-{os.getpid()}"
    command = [sys.executable, "-m", "ale", "run", str(config), "--directory", str(directory)]
    with subprocess.Popen(command, cwd=tmp_path, text=True) as run:
        wait_for(lambda: len(episodes(directory)) >= 3 and len(actors(directory.name)) == 2)
        cluster.remove_node(nodes[0], allow_graceful=False)
        events = directory / "events.jsonl"
        wait_for(lambda: "of the Ray cluster was lost" in events.read_text())
        n = len(episodes(directory))
        wait_for(lambda: len(episodes(directory)) >= n + 2)
        run.send_signal(signal.SIGKILL)
    assert len(episodes(directory)) < N
    assert len(actors(directory.name)) == 1, "an actor outlives a killed run"
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 actors of an earlier session of this run were ended" in done.stderr
    assert sorted(episodes(directory)) == sorted(f"0-t{i}-0" for i in range(N))
    assert actors(directory.name) == []
    cluster.remove_node(nodes[1])
