"""A policy that is sampled by servers and trained here equals one that is sampled here."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ale_nats.testing import WorkerGroup
from ale_nats_client.testing import running_server

from .hosts import SERVERS_KEY, hosts, servers_on
from .hosts import obstacle as hosts_obstacle

pytestmark = pytest.mark.needs("torch")

KINDS = ["write", "copy", "delete"]
PLACE = ("--folder", "registry")
COUNT = ("--name", "one", "--count", "2", *PLACE)
TINY = {"corpus": "corpus.txt", "layers": 2, "width": 64, "heads": 2, "mlp": 128}


@pytest.fixture
def config(workshop: Any) -> str:
    from ale_tasks_shell import corpus

    text = "".join(dict.fromkeys(corpus(0, 200, length=(1, 1), kinds=tuple(KINDS))))
    workshop.write("corpus.txt", text)
    workshop.config(
        tasks={"type": "shell", "length": 1, "kinds": KINDS, "seed": 1, "count": 64},
        llm={"type": "policy", "tiny": TINY, "max_tokens": 24},
        agent={"type": "iflow", "system_prompt": "", "max_turns": 2},
        credit={"type": "ipa", "failure_reward": -0.2},
        starts={"type": "initial", "demonstrations": 2, "until": 1.0, "probes": 2},
        trainer={
            "type": "policy",
            "objective": "reinforce",
            "lr": 3e-3,
            "imitation": {"when": "always", "weight": 1.0},
        },
        run={"steps": 3, "tasks_per_step": 4, "rollouts": 2, "concurrency": 4},
    )
    return "run.yaml"


def trained(run: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(run.glob("checkpoints/*/trainer.safetensors"))]


def so_far(run: Path) -> list[str]:
    file = run / "episodes.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def one_server_of(run: int) -> int:
    """The process of a server that a run has started."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == run and b"own-1" in (process / "cmdline").read_bytes():
                return int(process.name)
    raise AssertionError("the run has no server")


def test_servers_sample_what_the_policy_itself_would_to_the_bit(workshop: Any, config: str) -> None:
    workshop.succeeds("run", config)
    own = ("--set", "llm.type=servers", "--set", "llm.start=1", "--set")
    shared = {*Path("/dev/shm").glob("ale-weights-*")}
    for channel in ("shared_memory", "gloo"):
        workshop.succeeds("run", config, *own, f"llm.weights_channel={channel}")
    two = ("llm.weights_channel=folder", "--set", "llm.start=2", "--set", "run.retries=0")
    running = workshop.start("run", config, *own, *two)
    workshop.wait_for(lambda: len(workshop.runs) == 4)
    workshop.wait_for(lambda: len(so_far(workshop.runs[-1])) > 5)
    os.kill(one_server_of(running.process.pid), signal.SIGKILL)
    done = running.ended()
    assert done.code == 0, done.text  # the other server answers what this one was asked
    here, *others = workshop.runs
    assert len(trained(here)) > 0
    for there in others:
        versions = {
            version
            for turns in workshop.sampled(there).values()
            for turn in turns
            for version in turn["policy_versions"]
        }
        assert versions == {0, 1, 2}
        assert workshop.sampled(there) == workshop.sampled(here)
        assert trained(there) == trained(here)
        assert not (there / "weights").exists()
    assert {*Path("/dev/shm").glob("ale-weights-*")} <= shared
    assert workshop.left_behind() == []


def test_workers_on_nats_sample_from_the_servers_that_the_run_trains(
    workshop: Any, config: str, tmp_path: Path
) -> None:
    both = ("--set", "llm.type=servers", "--set", "llm.start=1", "--set", "starts=null")
    workshop.succeeds("run", config, *both)
    with running_server(tmp_path / "nats") as server:
        workers = WorkerGroup(server.url, tmp_path / "workers")
        try:
            for _ in range(2):
                workers.start()
            nats = ("--set", "executor.type=nats", "--set", f"executor.url={server.url}")
            done = workshop.ale("run", config, *both, *nats)
        finally:
            workers.stop()
    assert done.code == 0, done.text
    here, there = workshop.runs
    assert workshop.sampled(there) == workshop.sampled(here)
    assert len(trained(here)) > 0
    assert trained(there) == trained(here)


def test_servers_outlive_runs_and_are_refused_with_weights_of_another(
    workshop: Any, config: str
) -> None:
    workshop.write("serve.yaml", {"llm": {"type": "policy", "tiny": TINY}})
    workshop.succeeds("engines", "start", "--config", "serve.yaml", *COUNT)
    there = ("--set", "llm.type=servers", "--set", "llm.registry=registry", "--set", "run.steps=2")
    workshop.succeeds("run", config, *there)
    refused = workshop.ale("run", config, *there)
    assert refused.code == 2
    assert "which are not weights of this run" in refused.text
    assert "; 'take_over: true' gives it those" in refused.text
    workshop.succeeds("run", config, *there, "--set", "llm.take_over=true")
    first, second = workshop.runs
    assert workshop.sampled(second) == workshop.sampled(first)
    assert trained(second) == trained(first)
    listed = workshop.ale("engines", "list", *PLACE).out.splitlines()
    assert [line.split()[0] for line in listed] == ["name", "one-1", "one-2"]
    assert [line.split()[3] for line in listed[1:]] == ["2", "2"]
    workshop.succeeds("engines", "stop", "--all", *PLACE)
    assert "There is no server" in workshop.ale("engines", "list", *PLACE).out
    elsewhere = ("--folder", "elsewhere")
    workshop.succeeds("engines", "start", "--config", "serve.yaml", "--name", "other", *elsewhere)
    moved = ("--set", "llm.registry=elsewhere", "--set", "run.steps=3")
    workshop.succeeds("run", "--resume", str(first), *moved)
    workshop.succeeds("engines", "stop", "--all", *elsewhere)
    newest = [turns for id, turns in workshop.sampled(first).items() if id.startswith("2-")]
    assert len(newest) == 8
    assert all({*turn["policy_versions"]} == {2} for turns in newest for turn in turns)
    assert (first / "checkpoints" / "00002").is_dir()


def test_weights_that_have_no_room_in_shared_memory_are_named_before_the_run(
    workshop: Any, config: str
) -> None:
    script = 'mount -t tmpfs -o size=100k none /dev/shm && exec "$@"'
    small = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-m", "ale"]
    if subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("no mount namespace can be made here")
    own = ["--set", "llm.type=servers", "--set", "llm.start=1"]
    own += ["--set", "llm.weights_channel=shared_memory"]
    checked, done = (
        subprocess.run(
            [*small, verb, config, *own],
            cwd=workshop.folder,
            env=workshop.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        for verb in ("check", "run")
    )
    assert (checked.returncode, done.returncode) == (0, 2), checked.stderr + done.stderr
    for ended in (checked, done):
        assert "of weights can't be shared: /dev/shm has 0.000102 GB free" in ended.stderr
    assert "nothing was started" in done.stderr


def test_servers_on_other_hosts_get_the_weights_over_the_network(
    workshop: Any, config: str
) -> None:
    if obstacle := hosts_obstacle():
        pytest.skip(f"no hosts can be made here: {obstacle}")
    workshop.succeeds("run", config)
    workshop.write("serve.yaml", {"llm": {"type": "policy", "tiny": TINY}})
    copies = Path(workshop.environ.get("TMPDIR", "/tmp"))
    before = {*copies.glob("ale-weights-*")}
    with hosts(3) as (trainer, *others), servers_on(workshop, others):

        def run(*options: str) -> subprocess.CompletedProcess[str]:
            more = [part for each in options for part in ("--set", each)]
            more += ["--set", "llm.type=servers", "--set", "llm.registry=registry"]
            more += ["--set", f"llm.api_key_env={SERVERS_KEY}"]
            return subprocess.run(
                trainer.command(sys.executable, "-m", "ale", "run", config, *more),
                cwd=workshop.folder,
                env=workshop.environ,
                capture_output=True,
                text=True,
                check=False,
            )

        # The control: without an address the servers can't take the first new weights.
        failed = run()
        assert failed.returncode == 1
        said = "if the trainer does not share this folder with the server's machine"
        assert said in failed.stdout + failed.stderr
        for way in ("llm.weights_channel=gloo", "llm.weights_channel=folder"):
            done = run(way, "llm.weights_address=auto", "llm.take_over=true")
            assert done.returncode == 0, done.stdout + done.stderr
        assert {*copies.glob("ale-weights-*")} > before
    assert {*copies.glob("ale-weights-*")} == before
    here, _, *elsewhere = workshop.runs
    assert len(trained(here)) > 0
    for there in elsewhere:
        assert workshop.sampled(there) == workshop.sampled(here)
        assert trained(there) == trained(here)
        assert not (there / "weights").exists()


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("{type: vllm-server, build: cpu}", "ale engines install vllm --build cpu"),
        ("{type: sglang-server}", "ale engines install sglang"),
    ],
)
def test_a_program_that_is_not_installed_is_named_before_the_run(
    workshop: Any, config: str, server: str, said: str
) -> None:
    own = ("--set", "llm.type=servers", "--set", "llm.start=1", "--set", f"llm.server={server}")
    own += ("--set", "trainer.correction=truncate")
    environments = str(workshop.folder / "environments")
    checked = workshop.ale("check", config, *own, ALE_SERVER_ENVIRONMENTS=environments)
    done = workshop.ale("run", config, *own, ALE_SERVER_ENVIRONMENTS=environments)
    assert (checked.code, done.code) == (0, 2), checked.text + done.text
    for ended in (checked, done):
        assert "the run's own servers can't be started" in ended.err
        assert f"is not installed in {environments}" in ended.err
        assert said in ended.err


def test_two_runs_train_adapters_at_once_on_one_server_as_each_does_alone(
    workshop: Any, config: str
) -> None:
    workshop.write("serve.yaml", {"llm": {"type": "policy", "tiny": TINY}})
    lora = ("--set", "llm.type=servers", "--set", "trainer={lora: {r: 8}, lr: 0.02}")
    agents = {
        "one": (*lora, "--set", "llm.adapter=one"),
        "two": (*lora, "--set", "llm.adapter=two", "--set", "tasks.seed=2"),
    }
    alone = {}
    for name, given in agents.items():
        workshop.succeeds(
            "run", config, *given, "--set", "llm.start=1", "--set", f"run.name=alone-{name}"
        )
        alone[name] = workshop.runs[-1]
    workshop.succeeds("engines", "start", "--config", "serve.yaml", "--name", "both", *PLACE)
    there = ("--set", "llm.registry=registry", "--set")
    running = [
        workshop.start("run", config, *given, *there, f"run.name=both-{name}")
        for name, given in agents.items()
    ]
    for each in running:
        done = each.ended()
        assert done.code == 0, done.text
    workshop.succeeds("engines", "stop", "--all", *PLACE)
    both = {
        name: next(run for run in workshop.runs if f"both-{name}" in run.name) for name in agents
    }
    for name in agents:
        assert workshop.sampled(both[name]) == workshop.sampled(alone[name])
        assert len(trained(both[name])) > 0
        assert trained(both[name]) == trained(alone[name])
    assert trained(both["one"]) != trained(both["two"])
