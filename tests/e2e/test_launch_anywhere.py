"""One config by every launcher: the same episodes once each, and the same weights to the bit.

The hosts are emulated: nodes of Ray, Slurm's daemons and torchrun's hosts on this machine. Needs
torch and ray, and Slurm's programs: `nox -s launchers`.
"""

import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ale_servers.program import free_port

pytestmark = [
    pytest.mark.needs("torch", "ray"),
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore"),
]

PLUGINS = Path(__file__).resolve().parents[2] / "plugins" / "execution"
EPISODES = {f"{step}-t{task}-{i}" for step in range(3) for task in range(2) for i in range(2)}
AGENT = """\
import asyncio
from pathlib import Path

from ale.plugin import Component, hookimpl
from ale.types import CompletionRequest, Limits, Message, Stop, Turn


def held():
    # After the first step of a run that a test wants to disturb.
    here = Path(__file__).parent
    names = [path.name for path in here.glob("held/*")]
    return any((here / "runs" / name / "checkpoints" / "00000").is_dir() for name in names)


class OneAnswer:
    limits = Limits()

    async def run(self, context):
        while held():
            await asyncio.sleep(0.05)
        prompt = (Message(role="user", content=context.task.goal),)
        completion = await context.llm.complete(
            CompletionRequest(
                messages=prompt, conversation=context.conversation, turn=0, fresh_context=True
            )
        )
        context.recorder.append(Turn(prompt=prompt, fresh_context=True, completion=completion))
        return Stop(reason="finished")


@hookimpl
def ale_agents():
    return [Component("one-answer", None, lambda o, c: OneAnswer(), summary="Answers once.")]
"""


def fixtures_of(package: str) -> Any:
    """The module with the fixtures of a package's tests."""
    file = PLUGINS / package / "tests" / "conftest.py"
    spec = importlib.util.spec_from_file_location(f"conftest_of_{package}", file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


slurm = fixtures_of("ale-slurm").cluster


@pytest.fixture(scope="module")
def ray_nodes() -> Iterator[Any]:
    """A head that runs nothing, and three nodes."""
    ray = fixtures_of("ale-ray")
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head = {"num_cpus": 0, "object_store_memory": ray.STORE, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(3):
            made.add_node(num_cpus=2, object_store_memory=ray.STORE)
        yield made
        made.shutdown()


@pytest.fixture
def config(workshop: Any) -> str:
    """Two ranks that train, with a server beside them for which the run waits."""
    for number in range(2):
        workshop.task(f"t{number}")
    workshop.write("one_answer.py", AGENT)
    workshop.write("corpus.txt", "Do t0. Do t1. done\n" * 20)
    port = str(free_port())
    server = {
        "name": "web",
        "role": "server",
        "command": [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1"],
        "url": f"http://127.0.0.1:{port}/",
    }
    workshop.environ["GLOO_SOCKET_IFNAME"] = "lo"
    workshop.config(
        plugins=["one_answer.py"],
        agent={"type": "one-answer"},
        llm={
            "type": "policy",
            "tiny": {"corpus": "corpus.txt", "layers": 2, "width": 64, "heads": 2, "mlp": 128},
            "max_tokens": 8,
        },
        credit={"type": "ipa", "failure_reward": -0.5},
        trainer={"type": "policy", "lr": 1e-2, "sync": "copy", "processes": 2},
        launch={"type": "local", "restarts": 2, "processes": [server]},
        run={"steps": 3, "rollouts": 2, "concurrency": 1, "deterministic": True},
    )
    return "run.yaml"


def outcome(workshop: Any, run: Path) -> dict[str, str]:
    """Hashes of what was trained; the episodes are there once each."""
    assert workshop.episodes(run).keys() == EPISODES
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["outcome"]["outcome"] == "completed"
    last = run / "checkpoints" / "00002"
    found = {
        str(path.relative_to(last)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(last.rglob("*.safetensors"))
    }
    assert found
    return found


def by(workshop: Any, config: str, name: str, *more: str) -> dict[str, str]:
    """What one `ale launch` has trained."""
    given = ("--directory", f"runs/{name}", "--on", name.partition("-")[0], *more)
    done = workshop.ale("launch", config, *given, timeout_s=400)
    log = workshop.folder / "runs" / name / "logs" / "run.log"
    assert done.code == 0, done.text + (log.read_text() if log.exists() else "")
    assert (log.parent / "web.log").exists()
    return outcome(workshop, workshop.folder / "runs" / name)


def by_two_hosts(workshop: Any, config: str) -> dict[str, str]:
    meeting = f"launch.rendezvous=127.0.0.1:{free_port()}"
    given = ("--on", "torchrun", "--nodes", "2", "--set", meeting, "--directory", "runs/hosts")
    hosts = [
        workshop.start(
            *("launch", config, *given, "--set", f"launch.node={i}"),
            *("--set", "launch.address=127.0.0.1"),
        )
        for i in range(2)
    ]
    done = [host.ended(400) for host in hosts]
    assert [each.code for each in done] == [0, 0], done
    return outcome(workshop, workshop.folder / "runs" / "hosts")


def test_one_config_ends_alike_by_local_torchrun_and_two_hosts(workshop: Any, config: str) -> None:
    local = by(workshop, config, "local")
    assert by(workshop, config, "torchrun") == local
    assert by_two_hosts(workshop, config) == local


def held(workshop: Any, config: str, name: str, *more: str) -> tuple[Any, Path]:
    """A launch whose first step has ended, and whose second one waits for `release`."""
    directory = workshop.folder / "runs" / name
    workshop.write(f"held/{name}", "")
    given = ("--directory", str(directory), "--on", name.partition("-")[0], *more)
    running = workshop.start("launch", config, *given)
    workshop.wait_for((directory / "checkpoints" / "00000").is_dir, 400)
    return running, directory


def release(workshop: Any) -> None:
    for each in (workshop.folder / "held").iterdir():
        each.unlink()


def ended_alike(workshop: Any, running: Any, directory: Path) -> dict[str, str]:
    done = running.ended(600)
    assert done.code == 0, done.text + (directory / "logs" / "run.log").read_text()
    return outcome(workshop, directory)


def test_one_config_ends_alike_by_local_and_by_ray_with_a_lost_node(
    workshop: Any, ray_nodes: Any, config: str
) -> None:
    local = by(workshop, config, "local")
    # With a CPU each the ranks are not on the head, which has none.
    where = ("--nodes", "2", "--set", "launch.cpus=1")
    where += ("--set", f"launch.address={ray_nodes.address}")
    assert by(workshop, config, "ray", *where) == local
    running, directory = held(workshop, config, "ray-lost", *where)
    lost = node_of_rank_0(ray_nodes, directory)
    ray_nodes.remove_node(lost, allow_graceful=False)
    release(workshop)
    assert ended_alike(workshop, running, directory) == local
    assert running.has_printed("started again (1 of 2)")


def node_of_rank_0(cluster: Any, directory: Path) -> Any:
    pid = json.loads((directory / "logs" / ".rank0.json").read_text())["pid"]
    above = [pid]
    while above[-1] > 1:
        stat = Path(f"/proc/{above[-1]}/stat").read_text()
        above.append(int(stat.rpartition(")")[2].split()[1]))
    (found,) = [
        node
        for node in cluster.worker_nodes
        if any(p.process.pid in above for some in node.all_processes.values() for p in some)
    ]
    return found


def test_one_config_ends_alike_by_local_and_by_slurm_with_a_lost_node(
    workshop: Any, slurm: Any, config: str
) -> None:
    workshop.environ["SLURM_CONF"] = os.environ["SLURM_CONF"]
    local = by(workshop, config, "local")
    assert by(workshop, config, "slurm", "--nodes", "2") == local
    running, directory = held(workshop, config, "slurm-lost", "--nodes", "2")
    job, lost = job_and_node()
    slurm.kill_node(lost)
    release(workshop)
    begin_again(workshop, job)
    # Slurm gives each part of a job nodes of its own, and here are no more than three.
    slurm.start_node(lost)
    assert ended_alike(workshop, running, directory) == local
    assert "holds a run: it is resumed" in (directory / "logs" / "run.log").read_text()


def job_and_node() -> tuple[str, str]:
    """The job, and the node of its script, where rank 0 is."""
    command = ["squeue", "-h", "--sort=i", "-o", "%i %B"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    name, node = shown.splitlines()[0].split()
    return name.partition("+")[0], node


def begin_again(workshop: Any, job: str) -> None:
    """Slurm starts a requeued job no earlier than two minutes later; an administrator can."""
    command = ["scontrol", "show", "job", "-o", job]

    def requeued() -> list[str]:
        shown = subprocess.run(command, capture_output=True, text=True).stdout
        parts = [dict(w.partition("=")[::2] for w in line.split()) for line in shown.splitlines()]
        waits = all(part["JobState"] == "PENDING" and part["Restarts"] != "0" for part in parts)
        return [part["JobId"] for part in parts if waits]

    for part in workshop.wait_for(requeued, 200):
        subprocess.run(["scontrol", "update", f"jobid={part}", "StartTime=now"])


def interrupted(workshop: Any, config: str, name: str, *more: str) -> dict[str, str]:
    """What Ctrl-C and the same command again have trained; nothing is left in between."""
    running, directory = held(workshop, config, name, *more)
    running.signal(signal.SIGINT)
    log = directory / "logs" / "run.log"
    workshop.wait_for(lambda: "Finishing" in log.read_text(), 200)
    release(workshop)
    done = running.ended()
    assert done.code == 130, done.text + log.read_text()
    found = subprocess.run(["pgrep", "-af", str(workshop.folder)], capture_output=True, text=True)
    assert found.stdout == ""
    assert len(workshop.episodes(directory)) < len(EPISODES)
    return by(workshop, config, name, *more)


def test_an_interrupt_ends_everything_and_the_same_command_ends_alike(
    workshop: Any, slurm: Any, config: str
) -> None:
    workshop.environ["SLURM_CONF"] = os.environ["SLURM_CONF"]
    local = by(workshop, config, "local")
    assert interrupted(workshop, config, "local-interrupted") == local
    assert interrupted(workshop, config, "torchrun-interrupted") == local
    assert interrupted(workshop, config, "slurm-interrupted", "--nodes", "2") == local
    left = subprocess.run(["squeue", "-h"], capture_output=True, text=True, check=True)
    assert left.stdout == ""


def test_an_interrupt_on_ray_ends_everything_and_the_same_command_ends_alike(
    workshop: Any, ray_nodes: Any, config: str
) -> None:
    local = by(workshop, config, "local")
    where = ("--set", f"launch.address={ray_nodes.address}")
    assert interrupted(workshop, config, "ray-interrupted", *where) == local
