"""What an episode costs over NATS: a local run, and the same with one worker beside a server.

The episodes are those of bench_run.py, once with ten commands and once with one; a run over NATS
has the same number of episodes at once. All is run in turn, and what is shown are medians: seconds
of the whole run, and the difference for one episode. It is time in which nothing else of the run
waits, but for the processors, which the worker and the run share here.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from bench_run import BY_COMMAND, COMMANDS, EPISODES, ale_run, write_config

from ale_nats.testing import WorkerGroup
from ale_nats_client.testing import Server

ROUNDS = 5
CONCURRENCY = 8
RATIO_AIM = 1.5
"""Of the seconds with ten commands each, on a machine of two processors."""


def over_nats(config: Path, url: str) -> Path:
    """The same config with the executor nats."""
    plain = json.loads(config.read_text())
    target = config.with_name("nats.yaml")
    target.write_text(json.dumps({**plain, "executor": {"type": "nats", "url": url}}))
    return target


def shortened(config: Path) -> None:
    """One command in each episode."""
    turns = [
        {"calls": [{"name": "shell", "arguments": {"command": "mkdir job; touch job/sorted.txt"}}]},
        {"calls": [{"name": "finish", "arguments": {"summary": "sorted"}}]},
    ]
    (config.parent / "script.yaml").write_text(json.dumps({"default": turns}))
    check = {"type": "command_exit_code", "command": "test -e job/sorted.txt"}
    for path in (config.parent / "tasks").iterdir():
        task = json.loads(path.read_text())
        path.write_text(json.dumps({**task, "success_criteria": [check]}))


def measure(config: Path, distant: Path) -> tuple[float, float]:
    """Median seconds of the local run and of the one over NATS."""
    rounds = [(ale_run(config, EPISODES)[0], ale_run(distant, EPISODES)[0]) for _ in range(ROUNDS)]
    here, there = zip(*rounds, strict=True)
    return statistics.median(here), statistics.median(there)


def main() -> int:
    """Measure and print; 1 where the aim was missed."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "nats")
        server.start()
        group = WorkerGroup(server.url, Path(folder) / "workers")
        try:
            group.start("-n", str(CONCURRENCY))
            config = write_config(Path(folder), BY_COMMAND)
            distant = over_nats(config, server.url)
            ale_run(distant, EPISODES)  # the worker imports what it needs
            ten = measure(config, distant)
            shortened(config)
            one = measure(config, distant)
        finally:
            group.stop()
            server.stop()
    print(f"{'seconds, 200 episodes':<28}{'local':>8}{'nats':>8}{'ratio':>8}{'ms more each':>14}")
    for name, (here, there) in ((f"of {len(COMMANDS)} commands", ten), ("of 1 command", one)):
        more = 1000 * (there - here) / EPISODES
        print(f"{name:<28}{here:>8.2f}{there:>8.2f}{there / here:>8.2f}{more:>14.1f}")
    ratio = ten[1] / ten[0]
    print(f"ratio, aim {RATIO_AIM}: {'ok' if ratio <= RATIO_AIM else 'MISSED'}")
    return int(ratio > RATIO_AIM)


if __name__ == "__main__":
    sys.exit(main())
