"""One config by every launcher: the same episodes once each, and the same weights to the bit.

The hosts are emulated: nodes of Ray, Slurm's daemons and torchrun's hosts on this machine. Needs
torch and ray, and Slurm's programs.
"""

import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ale_servers.program import free_port

from .conftest import ALE, workshop_in
from .hosts import INTERFACE, SERVERS_KEY, Host, hosts, servers_on
from .hosts import obstacle as hosts_obstacle

pytestmark = [
    pytest.mark.needs("torch", "ray"),
    pytest.mark.filterwarnings("ignore"),
]

PLUGINS = Path(__file__).resolve().parents[2] / "plugins" / "execution"
EPISODES = {f"{step}-t{task}-{i}" for step in range(3) for task in range(2) for i in range(2)}
LLM = {
    "type": "policy",
    "tiny": {"corpus": "corpus.txt", "layers": 2, "width": 64, "heads": 2, "mlp": 128},
    "max_tokens": 8,
}
AGENT = """\
import asyncio
import os
from pathlib import Path

from ale.plugin import Component, hookimpl
from ale.types import CompletionRequest, Limits, Message, Stop, Turn


async def not_held():
    # A test that wants to disturb the run has written how many of its steps may end before.
    run = Path(os.environ["ALE_RUN_DIRECTORY"])
    held, ended = run.with_suffix(".held"), [*run.glob("checkpoints/[0-9]*")]
    if held.exists() and len(ended) >= int(held.read_text()):
        run.with_suffix(".waits").touch()
        while held.exists():
            await asyncio.sleep(0.05)


class OneAnswer:
    limits = Limits()

    async def run(self, context):
        await not_held()
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
        made = Cluster(initialize_head=True, head_node_args=ray.HEAD)
        for _ in range(3):
            made.add_node(num_cpus=1, object_store_memory=ray.STORE)
        yield made
        made.shutdown()


@pytest.fixture(scope="module")
def on_ray(ray_nodes: Any) -> Sequence[str]:
    """Each rank is on a node of its own. With a CPU each they are not on the head, with none."""
    return (
        "--nodes",
        "2",
        "--set",
        "launch.cpus=1",
        "--set",
        f"launch.address={ray_nodes.address}",
    )


@pytest.fixture(scope="module")
def on_slurm(slurm: Any, workshop: Any) -> Sequence[str]:
    """Each rank is on a node of its own."""
    workshop.environ["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return ("--nodes", "2")


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory, preloaded: Any) -> Iterator[Any]:
    """One for all launches, which have the config `run.yaml`: two ranks that train, with a server
    beside them for which the run waits."""
    with workshop_in(tmp_path_factory.mktemp("anywhere"), preloaded) as made:
        for number in range(2):
            made.task(f"t{number}")
        made.write("one_answer.py", AGENT)
        made.write("corpus.txt", "Do t0. Do t1. done\n" * 20)
        made.environ["GLOO_SOCKET_IFNAME"] = "lo"
        made.config(
            plugins=["one_answer.py"],
            agent={"type": "one-answer"},
            llm=LLM,
            credit={"type": "ipa", "failure_reward": -0.5},
            trainer={"type": "policy", "lr": 1e-2, "sync": "copy", "processes": 2},
            launch={"type": "local", "restarts": 2, "processes": [server("127.0.0.1")]},
            run={"steps": 3, "rollouts": 2, "concurrency": 1, "deterministic": True},
        )
        yield made


def server(address: str) -> dict[str, Any]:
    """For which every machine of a launch waits."""
    port = str(free_port())
    return {
        "name": "web",
        "role": "server",
        "command": [sys.executable, "-m", "http.server", port, "--bind", address],
        "url": f"http://{address}:{port}/",
    }


@pytest.fixture(scope="module")
def local(workshop: Any) -> dict[str, str]:
    """What a launch without any trouble on this machine has trained."""
    return launched(workshop, "local")


def outcome(workshop: Any, run: Path) -> dict[str, str]:
    """Hashes of the weights, moments and random state after the last step; each episode is there
    once."""
    assert workshop.episodes(run).keys() == EPISODES
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["outcome"]["outcome"] == "completed"
    last = run / "checkpoints" / "00002"
    found = {name: digest(tensor) for name, tensor in tensors_of(last).items()}
    embedding = "model.embed_tokens.weight"
    wanted = {f"weight/{embedding}", f"optimizer/exp_avg/{embedding}", "random/cpu"}
    assert wanted <= found.keys(), sorted(found)
    return found


def tensors_of(checkpoint: Path) -> dict[str, Any]:
    """All tensors of a checkpoint, whole, also those whose shards the ranks have saved."""
    import torch
    from safetensors.torch import load_file
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    whole = checkpoint.parents[1] / "whole.pt"
    dcp_to_torch_save(checkpoint / "shards", whole)
    found: dict[str, Any] = torch.load(whole)
    return {**found, **load_file(checkpoint / "trainer.safetensors")}


def digest(tensor: Any) -> str:
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()


def launched(workshop: Any, name: str, *more: str) -> dict[str, str]:
    """What one `ale launch` has trained, by the launcher that the name begins with."""
    given = ("--directory", f"runs/{name}", "--on", name.partition("-")[0], *more)
    done = workshop.ale("launch", "run.yaml", *given, timeout_s=400)
    log = workshop.folder / "runs" / name / "logs" / "run.log"
    assert done.code == 0, done.text + (log.read_text() if log.exists() else "")
    assert (log.parent / "web.log").exists()
    return outcome(workshop, workshop.folder / "runs" / name)


def on_two_hosts(workshop: Any, name: str, both: Sequence[Host], *more: str) -> dict[str, str]:
    """What the ranks on two hosts have trained together."""
    launch = (str(ALE), "launch", "run.yaml", "--on", "torchrun", "--nodes", "2")
    launch += ("--directory", f"runs/{name}")
    same = (
        f"launch.rendezvous={both[0].address}:29500",
        f"launch.processes={json.dumps([server(both[0].address)])}",
        *more,
    )

    def launched_on(number: int) -> subprocess.CompletedProcess[str]:
        own = (f"launch.node={number}", f"launch.address={both[number].address}")
        given = [word for each in (*own, *same) for word in ("--set", each)]
        return subprocess.run(
            both[number].command(*launch, *given),
            cwd=workshop.folder,
            env={**workshop.environ, "GLOO_SOCKET_IFNAME": INTERFACE},
            capture_output=True,
            text=True,
            timeout=200,
        )

    with ThreadPoolExecutor(2) as threads:
        done = [*threads.map(launched_on, range(2))]
    assert [each.returncode for each in done] == [0, 0], done
    return outcome(workshop, workshop.folder / "runs" / name)


def test_another_learning_rate_ends_with_other_weights(
    workshop: Any, local: dict[str, str]
) -> None:
    """The comparisons of this file see what a launcher trains."""
    other = launched(workshop, "local-faster", "--set", "trainer.lr=2e-2")
    assert other.keys() == local.keys()
    same = {name for name in local if other[name] == local[name]}
    assert {name for name in same if not name.startswith(("optimizer/step/", "random/"))} == set()


@pytest.fixture
def four_hosts() -> Iterator[Sequence[Host]]:
    if obstacle := hosts_obstacle():
        pytest.skip(f"no hosts can be made here: {obstacle}")
    with hosts(4) as made:
        yield made


def test_torchrun_on_two_hosts_ends_as_local(
    workshop: Any, local: dict[str, str], four_hosts: Sequence[Host]
) -> None:
    assert on_two_hosts(workshop, "hosts", four_hosts[:2]) == local


def test_torchrun_on_two_hosts_with_servers_on_two_others_ends_as_local(
    workshop: Any, local: dict[str, str], four_hosts: Sequence[Host]
) -> None:
    workshop.write("serve.yaml", {"llm": LLM})
    servers = (
        "llm.type=servers",
        "llm.registry=registry",
        f"llm.api_key_env={SERVERS_KEY}",
        "llm.weights_channel=gloo",
        "llm.weights_address=auto",
    )
    with servers_on(workshop, four_hosts[2:]):
        assert on_two_hosts(workshop, "servers", four_hosts[:2], *servers) == local
    sampled = workshop.sampled(workshop.folder / "runs" / "servers")
    versions = {v for turns in sampled.values() for turn in turns for v in turn["policy_versions"]}
    assert versions == {0, 1, 2}


def held(workshop: Any, name: str, *more: str, steps: int = 1) -> tuple[Any, Path]:
    """A launch of which some steps have ended, and the next one waits for `release`."""
    directory = workshop.folder / "runs" / name
    workshop.write(f"runs/{name}.held", str(steps))
    given = ("--directory", str(directory), "--on", name.partition("-")[0], *more)
    running = workshop.start("launch", "run.yaml", *given)
    waits = directory.with_suffix(".waits")
    workshop.wait_for(lambda: waits.exists() or running.process.poll() is not None, 400)
    assert waits.exists(), running.ended().text
    return running, directory


def release(directory: Path) -> None:
    directory.with_suffix(".held").unlink()


def ended_alike(workshop: Any, running: Any, directory: Path) -> dict[str, str]:
    done = running.ended(600)
    assert done.code == 0, done.text + (directory / "logs" / "run.log").read_text()
    return outcome(workshop, directory)


@pytest.mark.parametrize(
    ("launcher", "rank"),
    [("local", 1), ("torchrun", 0), pytest.param("torchrun", 1, marks=pytest.mark.long)],
)
def test_a_launch_with_a_killed_rank_ends_as_local(
    workshop: Any, local: dict[str, str], launcher: str, rank: int
) -> None:
    running, directory = held(workshop, f"{launcher}-killed-{rank}")
    killed = forked_rank(directory) if launcher == "local" else torchruns_rank(directory, rank)
    os.kill(killed, signal.SIGKILL)
    release(directory)
    assert ended_alike(workshop, running, directory) == local
    assert "holds a run: it is resumed" in (directory / "logs" / "run.log").read_text()


def forked_rank(directory: Path) -> int:
    """The second rank of a run that has started it itself."""
    forks = {pid for pid, command in processes_of(directory).items() if "forkserver" in command}
    (found,) = (pid for pid in forks if parent_of(pid) in forks)
    return found


def torchruns_rank(directory: Path, rank: int) -> int:
    """The process that trains, of a rank that torchrun has started."""
    (found,) = (
        pid
        for pid, command in processes_of(directory, f"RANK={rank}").items()
        if "ale_trainer_policy.ranks" in command and "rank.py" not in command
    )
    return found


def test_ray_with_a_lost_node_ends_as_local(
    workshop: Any, ray_nodes: Any, on_ray: Sequence[str], local: dict[str, str]
) -> None:
    running, directory = held(workshop, "ray-lost", *on_ray)
    ray_nodes.remove_node(node_of_rank_0(ray_nodes, directory), allow_graceful=False)
    release(directory)
    assert ended_alike(workshop, running, directory) == local
    assert running.has_printed("started again (1 of 2)")


def node_of_rank_0(cluster: Any, directory: Path) -> Any:
    pid = json.loads((directory / "logs" / ".rank0.json").read_text())["pid"]
    above = [pid]
    while above[-1] > 1:
        above.append(parent_of(above[-1]))
    (found,) = [
        node
        for node in cluster.worker_nodes
        if any(p.process.pid in above for some in node.all_processes.values() for p in some)
    ]
    return found


def test_slurm_with_a_lost_node_ends_as_local(
    workshop: Any, slurm: Any, on_slurm: Sequence[str], local: dict[str, str]
) -> None:
    running, directory = held(workshop, "slurm-lost", *on_slurm)
    job, lost = job_and_node()
    slurm.kill_node(lost)
    release(directory)
    begin_again(workshop, job)
    # Slurm gives each part of a job nodes of its own, and here are no more than three.
    slurm.start_node(lost)
    assert ended_alike(workshop, running, directory) == local
    assert "holds a run: it is resumed" in (directory / "logs" / "run.log").read_text()


def parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


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


def interrupted(workshop: Any, launcher: str, *more: str, steps: int) -> dict[str, str]:
    """What Ctrl-C after some steps and the same command again have trained.

    Nothing is left in between. With no step, all of it is trained by the second command.
    """
    running, directory = held(workshop, f"{launcher}-interrupted", *more, steps=steps)
    assert processes_of(directory)
    running.signal(signal.SIGINT)
    log = directory / "logs" / "run.log"
    workshop.wait_for(lambda: "Finishing" in log.read_text(), 200)
    release(directory)
    done = running.ended()
    assert done.code == 130, done.text + log.read_text()
    assert processes_of(directory) == {}
    assert len(workshop.episodes(directory)) < len(EPISODES)
    return launched(workshop, directory.name, *more)


def processes_of(directory: Path, *variables: str) -> dict[int, str]:
    """Ids and commands of the processes of a launch that have these variables."""
    wanted, found = {f"ALE_RUN_DIRECTORY={directory}", *variables}, {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if wanted <= {*(process / "environ").read_text(errors="replace").split("\0")}:
                found[int(process.name)] = (process / "cmdline").read_text()
    return found


# An interrupt and a lost node both end in the same command's resume: the other launchers show it
# after a lost node, and after an interrupt only with -m long.
@pytest.mark.parametrize("launcher", ["local", pytest.param("torchrun", marks=pytest.mark.long)])
def test_the_same_command_after_an_interrupt_ends_as_local(
    workshop: Any, local: dict[str, str], launcher: str
) -> None:
    assert interrupted(workshop, launcher, steps=1) == local


@pytest.mark.long
def test_the_same_command_after_an_interrupt_on_ray_ends_as_local(
    workshop: Any, on_ray: Sequence[str], local: dict[str, str]
) -> None:
    assert interrupted(workshop, "ray", *on_ray, steps=0) == local


@pytest.mark.long
def test_the_same_command_after_an_interrupt_on_slurm_ends_as_local(
    workshop: Any, on_slurm: Sequence[str], local: dict[str, str]
) -> None:
    assert interrupted(workshop, "slurm", *on_slurm, steps=0) == local
    left = subprocess.run(["squeue", "-h"], capture_output=True, text=True, check=True)
    assert left.stdout == ""
