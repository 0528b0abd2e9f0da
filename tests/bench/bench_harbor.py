"""Task folders of Harbor: `ale run` against Harbor itself, and start-up on many of them.

Side by side in one run: the reference solutions of 8 trivial tasks, images cached, at concurrency 1
and 4, where Docker and the command `harbor` are at hand (its path may be given by HARBOR). The
start-up of `ale run` on 3,000 folders of either format is measured against reading the same files
and parsing their TOML or YAML in a bare Python. Exit status 1 where an aim is missed.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ale_sandboxing.container_testing.images import DEBIAN, CannotMakeError, provide

ALE = str(Path(sys.executable).with_name("ale"))
TASKS = 8
AIMS = {1: 10.0, 4: 5.0}
"""How much less wall time than Harbor, by concurrency."""
FOLDERS = 3000
START_AIM = 2.5
"""Times the CPU time of the bare reading: less than 2 s on a small machine that is idle."""
TRIES = 3
BARE = """
import pathlib, sys, tomllib, yaml
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*")):
    if path.is_file():
        text = path.read_text()
        if path.suffix == ".toml":
            tomllib.loads(text)
        elif path.suffix == ".yaml":
            yaml.load(text, yaml.CSafeLoader)
"""
COMPOSE = """services:
  {service}:
    build: {{dockerfile: Dockerfile}}
    image: ${{T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}}
    container_name: ${{T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}}
    command: ["sh", "-c", "sleep infinity"]
    environment:
      - TEST_DIR=${{T_BENCH_TEST_DIR}}
    volumes:
      - ${{T_BENCH_TASK_LOGS_PATH}}:${{T_BENCH_CONTAINER_LOGS_PATH}}
"""
STEP = '[[steps]]\nname = "{name}"\n[steps.agent]\ntimeout_sec = 60\n'


def write(folder: Path, n: int) -> Path:
    """So many task folders, all alike."""
    for i in range(n):
        _write(folder / f"task-{i:04d}", TASK)
    return folder


def many_of_harbor(folder: Path, n: int) -> Path:
    """Task folders of Harbor: of ten, one with a compose file and one with two steps."""
    composed = {**TASK, "environment/docker-compose.yaml": COMPOSE.format(service="main")}
    steps = "".join(STEP.format(name=name) for name in ("one", "two"))
    stepped = {"task.toml": TASK["task.toml"] + steps}
    stepped["environment/Dockerfile"] = TASK["environment/Dockerfile"]
    for name in ("instruction.md", "solution/solve.sh", "tests/test.sh"):
        stepped |= {f"steps/{step}/{name}": TASK[name] for step in ("one", "two")}
    for i in range(n):
        _write(folder / f"task-{i:04d}", {3: composed, 7: stepped}.get(i % 10, TASK))
    return folder


def many_of_terminal_bench(folder: Path, n: int) -> Path:
    """Task folders of Terminal-Bench 1, which have a compose file each."""
    task = {
        "task.yaml": "instruction: |-\n  Write hello to out.txt.\nauthor_email: a@example.com\n"
        "difficulty: easy\ncategory: files\ntags:\n  - files\nparser_name: pytest\n"
        "max_agent_timeout_sec: 360.0\nmax_test_timeout_sec: 60.0\n",
        "docker-compose.yaml": COMPOSE.format(service="client"),
        "Dockerfile": TASK["environment/Dockerfile"],
        "run-tests.sh": "#!/bin/bash\npytest $TEST_DIR/test_outputs.py -rA\n",
        "solution.sh": TASK["solution/solve.sh"],
        "tests/test_outputs.py": "def test_it():\n    assert open('out.txt').read() == 'hello'\n",
    }
    for i in range(n):
        _write(folder / f"task-{i:04d}", task)
    return folder


TASK = {
    "task.toml": 'schema_version = "1.4"\n[metadata]\ndifficulty = "easy"\ntags = ["a"]\n'
    "[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 60\n[environment]\ncpus = 1\n",
    "instruction.md": "Write hello to out.txt.\n",
    "environment/Dockerfile": f"FROM {DEBIAN}\nWORKDIR /app\n",
    "solution/solve.sh": "#!/bin/bash\necho hello >out.txt\n",
    "tests/test.sh": "#!/bin/bash\n"
    "if grep -qx hello out.txt; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n",
}


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


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


def least_seconds(argv: Sequence[str], cwd: Path) -> tuple[float, float]:
    """User and system time of a command, and wall time: the least of some runs of each, as others
    only add to them."""
    cpu = wall = float("inf")
    for _ in range(TRIES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall = min(wall, seconds(argv, cwd))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        cpu = min(cpu, spent)
    return cpu, wall


def start_up(folder: Path, name: str, tasks: Path) -> bool:
    """Start-up on many folders; was the aim missed?"""
    dry = [ALE, "run", config(folder, tasks, 1), "--dry-run"]
    bare = [sys.executable, "-c", BARE, str(tasks)]
    (ours, wall), (floor, _) = least_seconds(dry, folder), least_seconds(bare, folder)
    missed = ours > START_AIM * floor
    print(
        f"start-up, {FOLDERS} folders of {name:15} {ours:5.2f} s cpu, {wall:5.2f} s wall   "
        f"bare reading {floor:5.2f} s cpu   {ours / floor:5.1f}x  (at most {START_AIM:g}x)  "
        f"{'MISSED' if missed else 'ok'}"
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
        tasks = many_of_harbor(folder / "harbor", FOLDERS)
        missed = start_up(folder, "Harbor", tasks)
        tasks = many_of_terminal_bench(folder / "bench", FOLDERS)
        missed |= start_up(folder, "Terminal-Bench", tasks)
        missed |= against_harbor(folder)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
