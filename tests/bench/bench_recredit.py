"""`ale show credit` over a stored run: speed by its size, and memory at ten times the size.

The bare operation is `json.loads` over the same lines. CPU seconds of the whole command, its start
included, so the larger run is the one that counts.
"""

import sys
import tempfile
from pathlib import Path

from bench_dataset import bare, measured

from ale._store import Redactor, RunDirectory
from ale.testing.builders import episode, turn

OPTIONS = ("--scheme", "ipa", "--scheme", "grpo", "--limit", "0")
EPISODES = 300
GROUP = 4
SPEED_AIM = 50.0
MEMORY_AIM = 1.15


def write_run(path: Path, episodes: int) -> float:
    """A run of episodes of 20 turns; the size of its file in MB."""
    manifest = {
        "run_id": path.name,
        "n_tasks": episodes // GROUP,
        "config": {"chunker": {"type": "interaction"}},
    }
    store = RunDirectory.create(path, manifest, Redactor({}))
    turns = [
        turn("I look. " * 20, calls=[("shell", '{"command": "ls"}')], observations=["x" * 1500])
        for _ in range(20)
    ]
    for number in range(episodes):
        task, rollout = f"task-{number // GROUP}", number % GROUP
        store.add_episode(episode(float(rollout > 0), *turns, task_id=task, rollout=rollout))
    store.close()
    return (path / "episodes.jsonl").stat().st_size / 1e6


def main() -> int:
    """Measure and print; 1 where an aim was missed."""
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        write_run(small, EPISODES)
        size = write_run(large, 10 * EPISODES)
        _, memory = measured("show", "credit", str(small), *OPTIONS)
        spent, memory_large = min(
            measured("show", "credit", str(large), *OPTIONS) for _ in range(3)
        )
        plain = min(bare(large / "episodes.jsonl") for _ in range(3))
    speed, growth = size / spent, memory_large / memory
    fast, flat = speed >= SPEED_AIM, growth <= MEMORY_AIM
    print(f"{size:.0f} MB in {10 * EPISODES} episodes, two schemes")
    print(f"{'':<22}{'measured':>10}{'bare':>10}{'ratio':>8}  aim")
    print(
        f"{'MB per cpu second':<22}{speed:>10.0f}{size / plain:>10.0f}{spent / plain:>8.2f}"
        f"  at least {SPEED_AIM:.0f}  {'ok' if fast else 'MISSED'}"
    )
    print(
        f"{'MiB, ten times / one':<22}{memory_large:>10.1f}{memory:>10.1f}{growth:>8.2f}"
        f"  at most {MEMORY_AIM}  {'ok' if flat else 'MISSED'}"
    )
    return int(not (fast and flat))


if __name__ == "__main__":
    sys.exit(main())
