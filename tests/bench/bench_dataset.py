"""Collect, score and pair 10,000 episodes of 20 turns: speed by the size of the file, and memory.

Each stage is a command of its own, and reads the file that the stage before it wrote; its CPU
seconds include its start. The bare operation is `json.loads` over the collected file. Memory is the
peak of each command at ten times the number of episodes.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ale._store import Redactor, RunDirectory
from ale.testing.builders import episode, turn
from ale.types import Episode, Message, Turn, replace

ALE = str(Path(sys.executable).parent / "ale")
EPISODES = 10_000
GROUP = 8
TURNS = 20
SPEED_AIM = 50.0
MEMORY_AIM = 1.2
PROMPT = Message(role="system", content="You complete a task on a Unix machine. " * 10)


def turns() -> list[Turn]:
    """Those that all episodes share: what a turn says and sees, in 2 kB."""
    text = "I look at what is there, and then I count what the task asks for. " * 6
    return [
        turn(text, calls=[("shell", f'{{"command": "ls {i}"}}')], observations=["x" * 1500])
        for i in range(TURNS)
    ]


def episodes(number: int) -> Iterator[Episode]:
    """Rollouts of tasks that part at the first answer, half of them successful."""
    shared = turns()
    for i in range(number):
        task, rollout = f"task-{i // GROUP}", i % GROUP
        goal = Message(role="user", content=f"Count the files of {task}.")
        first = replace(
            turn(f"Way {rollout % 4}.", calls=[("shell", '{"command": "ls"}')]),
            prompt=(PROMPT, goal),
            fresh_context=True,
        )
        reward = float(rollout % 2)
        yield episode(reward, first, *shared[1:], task_id=task, rollout=rollout)


def write_run(path: Path, number: int) -> None:
    """A run of that many episodes."""
    manifest = {
        "run_id": path.name,
        "n_tasks": number // GROUP,
        "config": {"chunker": {"type": ""}},
    }
    store = RunDirectory.create(path, manifest, Redactor({}))
    for each in episodes(number):
        store.add_episode(each)
    store.close()


def measured(*arguments: str) -> tuple[float, float]:
    """CPU seconds and peak memory in MiB of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen([ALE, *arguments], stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        except OSError:
            break
        peaks = [int(line.split()[1]) for line in status if line.startswith("VmHWM")]
        peak = max(peak, *peaks, 0)
        time.sleep(0.01)
    if process.wait() != 0:
        raise SystemExit(f"ale {' '.join(arguments)} exited with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, peak / 1024


def stages(folder: Path) -> dict[str, tuple[str, ...]]:
    """The commands, by what the table calls them."""
    raw, scored = str(folder / "raw.jsonl"), str(folder / "scored.jsonl")
    pairs = ("data", "dpo", "--in", scored, "--out", str(folder / "dpo.jsonl"), "--pairing")
    return {
        "collect": ("data", "collect", str(folder / "run"), "--out", raw),
        "score": ("data", "score", "--in", raw, "--out", scored),
        "pair, same prompt": (*pairs, "same-prompt"),
        "pair, same trajectory": (*pairs, "same-trajectory"),
    }


def bare(path: Path) -> float:
    """CPU seconds of reading a file as JSON."""
    started = time.process_time()
    with path.open("rb") as file:
        for line in file:
            json.loads(line)
    return time.process_time() - started


def main() -> int:
    """Measure and print; 1 where an aim was missed."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else EPISODES
    with tempfile.TemporaryDirectory() as name:
        small, large = Path(name) / "small", Path(name) / "large"
        write_run(small / "run", number // 10)
        write_run(large / "run", number)
        few = {stage: measured(*command) for stage, command in stages(small).items()}
        many = {stage: measured(*command) for stage, command in stages(large).items()}
        size = (large / "raw.jsonl").stat().st_size / 1e6
        plain = min(bare(large / "raw.jsonl") for _ in range(2))
    print(
        f"{size:.0f} MB in {number} episodes of {TURNS} turns; json.loads: {size / plain:.0f} MB/s"
    )
    header = ("MB per cpu second", "ratio to json.loads", "MiB", "MiB, a tenth", "ratio")
    print(f"{'':<24}" + "".join(f"{title:>21}" for title in header))
    missed = 0
    for stage, (spent, memory) in many.items():
        growth = memory / few[stage][1]
        ok = size / spent >= SPEED_AIM and growth <= MEMORY_AIM
        missed += not ok
        values = [f"{size / spent:.0f}", f"{spent / plain:.2f}", f"{memory:.1f}"]
        values += [f"{few[stage][1]:.1f}", f"{growth:.2f}"]
        cells = "".join(f"{value:>21}" for value in values)
        print(f"{stage:<24}{cells}  {'ok' if ok else 'MISSED'}")
    chain = sum(many[stage][0] for stage in ("collect", "score", "pair, same prompt"))
    print(f"collect, score and pair (same prompt) together: {size / chain:.0f} MB per cpu second")
    print(
        f"aims: at least {SPEED_AIM:.0f} MB per cpu second, at most {MEMORY_AIM} times the memory"
    )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
