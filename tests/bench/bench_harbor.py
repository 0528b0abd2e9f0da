"""Task folders of Harbor: `ale run` against Harbor itself, and start-up on many of them.

Side by side in one run: the reference solutions of 8 trivial tasks, images cached, at concurrency 1
and 4, where Docker and the command `harbor` are at hand (its path may be given by HARBOR). The
start-up of `ale run` on 3,000 folders is measured against reading the same files and parsing their
TOML in a bare Python. Exit status 1 where an aim is missed.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ale_sandbox_container.testing_images import DEBIAN, CannotMakeError, provide

ALE = str(Path(sys.executable).with_name("ale"))
TASKS = 8
AIMS = {1: 10.0, 4: 5.0}
"""How much less wall time than Harbor, by concurrency."""
FOLDERS = 3000
START_AIM = 5.0
"""Times the CPU time of the bare reading: less than 2 s on a small machine that is idle."""
TRIES = 3
BARE = """
import pathlib, sys, tomllib
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    tomllib.loads((folder / "task.toml").read_text())
    for name in ("instruction.md", "environment/Dockerfile", "solution/solve.sh"):
        (folder / name).read_text()
"""


def write(folder: Path, n: int) -> Path:
    """So many task folders, all alike."""
    texts = {
        "task.toml": 'schema_version = "1.4"\n[metadata]\ndifficulty = "easy"\ntags = ["a"]\n'
        "[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 60\n[environment]\ncpus = 1\n",
        "instruction.md": "Write hello to out.txt.\n",
        "environment/Dockerfile": f"FROM {DEBIAN}\nWORKDIR /app\n",
        "solution/solve.sh": "#!/bin/bash\necho hello >out.txt\n",
        "tests/test.sh": "#!/bin/bash\n"
        "if grep -qx hello out.txt; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n",
    }
    for i in range(n):
        for name, text in texts.items():
            path = folder / f"task-{i:04d}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder


def config(folder: Path, tasks: Path, concurrency: int) -> str:
    """A config of `ale run`; its path."""
    path = folder / f"run-{concurrency}.yaml"
    whole = {
        "tasks": {"type": "harbor", "path": str(tasks)},
        "sandbox": {
            "type": "docker",
            "capabilities": ["DOCKER_DEFAULT"],
            "new_privileges": True,
            **dict.fromkeys(("memory_mb", "processes", "cpu_s", "file_size_mb", "open_files")),
        },
        "agent": {"type": "oracle"},
        "run": {"concurrency": concurrency, "directory": str(folder / "runs")},
    }
    path.write_text(json.dumps(whole))
    return str(path)


def seconds(argv: Sequence[str], cwd: Path) -> float:
    """Wall clock of a command."""
    started = time.perf_counter()
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - started


def cpu_seconds(argv: Sequence[str], cwd: Path) -> float:
    """User and system time of a command: the least of some runs, as others only add to it."""
    least = float("inf")
    for _ in range(TRIES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds(argv, cwd)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        least = min(least, spent)
    return least


def start_up(folder: Path) -> bool:
    """Start-up on many folders; was the aim missed?"""
    tasks = write(folder / "many", FOLDERS)
    dry = [ALE, "run", config(folder, tasks, 1), "--dry-run"]
    bare = [sys.executable, "-c", BARE, str(tasks)]
    ours, floor = cpu_seconds(dry, folder), cpu_seconds(bare, folder)
    missed = ours > START_AIM * floor
    print(
        f"start-up, {FOLDERS} folders    {ours:8.2f} s cpu   bare reading {floor:8.2f} s   "
        f"{ours / floor:5.1f}x  (at most {START_AIM:g}x)  {'MISSED' if missed else 'ok'}"
    )
    return missed


def against_harbor(folder: Path) -> bool:
    """The same tasks by both; was an aim missed?"""
    harbor = os.environ.get("HARBOR") or shutil.which("harbor")
    if harbor is None:
        print("against harbor: skipped, it is not at hand (HARBOR names its path)")
        return False
    try:
        provide(["docker"], DEBIAN)
    except (CannotMakeError, FileNotFoundError) as error:
        print(f"against harbor: skipped, no Docker: {error}")
        return False
    tasks = write(folder / "few", TASKS)
    theirs = [harbor, "run", "-p", str(tasks), "-a", "oracle", "-o", str(folder / "jobs"), "-y"]
    seconds([*theirs, "-q", "-n", "4", "--job-name", "warm"], folder)
    seconds([ALE, "run", config(folder, tasks, 4)], folder)
    missed = False
    for concurrency, aim in AIMS.items():
        ours = seconds([ALE, "run", config(folder, tasks, concurrency)], folder)
        job = ["-q", "-n", str(concurrency), "--job-name", f"n{concurrency}"]
        peer = seconds([*theirs, *job], folder)
        result = json.loads((folder / "jobs" / f"n{concurrency}" / "result.json").read_text())
        assert result["stats"]["n_errored_trials"] == 0, "harbor's own trials failed"
        missed |= peer < aim * ours
        print(
            f"{TASKS} tasks, concurrency {concurrency}    {ours:8.2f} s   harbor {peer:8.2f} s   "
            f"{peer / ours:5.1f}x  (at least {aim:g}x)  {'MISSED' if peer < aim * ours else 'ok'}"
        )
    return missed


def main() -> int:
    """Measure and print; 1 where an aim was missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        missed = start_up(folder)
        missed |= against_harbor(folder)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
