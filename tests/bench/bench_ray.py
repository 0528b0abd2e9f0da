"""The executor ``ray`` beside ``local``: scripted episodes at the same total concurrency.

The cluster has four nodes on this machine. It runs before the clock starts, the actors do not:
both are whole commands, `ale run`, in turn, and what is shown are the medians: of episodes that
only compute, for some 14 ms, and of episodes that also wait, as for a model or a program. The aim
is for the latter: the start of Ray's processes, for which all nodes use the cores of this machine,
takes a fixed number of seconds. Needs ray, which the environment of the session `bench` lacks:
pip install -e '.[ray]'. Arguments: episodes, rounds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench_run import ALE, write_config

N_NODES = 4
CONCURRENCY = 16
AIM = 1.15
STORE = 80 * 2**20
COMMANDS = ["printf 'b\\na\\n' > names.txt", "sort names.txt > sorted.txt", "touch done"]
KINDS = {"only compute": COMMANDS, "wait for 0.5 s": [*COMMANDS, "sleep 0.5"]}
CHECK = {"type": "command_exit_code", "command": "test -e done"}


def seconds(config: Path, number: int, episodes: int, *options: str) -> tuple[float, float]:
    """Wall time of a run, each of whose episodes succeeds; the part from the first one's end on."""
    directory = config.with_name(f"run-{number}")
    command = [ALE, "run", str(config), "--directory", str(directory), "-n", str(CONCURRENCY)]
    for option in options:
        command += ["--set", option]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    stored, first = directory / "episodes.jsonl", 0.0
    while process.poll() is None:
        if not first and stored.exists() and stored.stat().st_size:
            first = time.perf_counter()
        time.sleep(0.05)
    ended = time.perf_counter()
    assert process.returncode == 0
    outcome = json.loads((directory / "manifest.json").read_text())["outcome"]
    assert (outcome["n_graded"], outcome["n_succeeded"]) == (episodes, episodes)
    return ended - started, ended - first


def started_cluster() -> Any:
    """A head and four nodes."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(N_NODES):
        made.add_node(num_cpus=1, resources={"many": 1}, object_store_memory=STORE)
    return made


def main() -> None:
    """Run both in turn."""
    if find_spec("ray") is None:
        print("not measured: ray is not installed")
        return
    episodes, rounds = (int(text) for text in (*sys.argv[1:], "1000", "3")[:2])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = started_cluster()
    ray = ("executor.type=ray", f"executor.address={cluster.address}", "executor.resource=many")
    print(f"{episodes} episodes, {CONCURRENCY} at once, {N_NODES} nodes, {rounds} rounds")
    for kind, commands in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            config = write_config(Path(folder), CHECK, episodes, commands)
            taken: dict[str, list[tuple[float, float]]] = {"local": [], "ray": []}
            for i in range(rounds):
                taken["local"].append(seconds(config, 2 * i, episodes))
                taken["ray"].append(seconds(config, 2 * i + 1, episodes, *ray))
        print(f"episodes that {kind}")
        ratio = show("whole command", taken, 0)
        show("from the first episode's end on", taken, 1)
    cluster.shutdown()
    print(f"aim: {AIM} for the last whole command: {'ok' if ratio <= AIM else 'MISSED'}")
    if ratio > AIM:
        raise SystemExit(1)


def show(what: str, taken: dict[str, list[tuple[float, float]]], part: int) -> float:
    """Print the medians of one of the two times; returns their ratio."""
    local, remote = (statistics.median(each[part] for each in taken[n]) for n in ("local", "ray"))
    print(f"  {what:32} local {local:6.1f} s   ray {remote:6.1f} s   ratio {remote / local:.2f}")
    return remote / local


if __name__ == "__main__":
    main()
