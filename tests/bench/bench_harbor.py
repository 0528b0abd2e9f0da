"""Task folders of Harbor: `ale eval` against Harbor itself, and start-up on many of them.

In turns in one run: the reference solutions of 8 trivial tasks, graded in a judge by `ale`, images
cached, at concurrency 1 and 4. That part needs Docker, docker compose 2 as a plugin of its client
(DOCKER_CONFIG) and the command `harbor` (HARBOR may give its path); `few` as the argument runs it
alone. The start-up of `ale run` on 3,000 folders of either format is measured against reading the
same files and parsing their TOML or YAML in a bare Python. Exit status 1 where an aim is missed.
"""

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ale.judging import had_no_judge
from ale.runs import RunReader
from ale_sandboxing.container_testing.images import DEBIAN, CannotMakeError, provide

ALE = str(Path(sys.executable).with_name("ale"))
TASKS = 8
AIMS = {1: 10.0, 4: 7.0}
"""How much less wall time than Harbor, by concurrency."""
ROUNDS = 2
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
    by_harbor(folder, harbor, tasks, 4, "warm")
    by_ale(folder, tasks, 4, "warm")
    missed = False
    for concurrency, aim in AIMS.items():
        pairs = []
        for n in range(ROUNDS):
            ours = by_ale(folder, tasks, concurrency, f"n{concurrency}-{n}")
            pairs.append(
                (ours, by_harbor(folder, harbor, tasks, concurrency, f"n{concurrency}-{n}"))
            )
        ratios = sorted(peer / ours for ours, peer in pairs)
        ours, peer = (statistics.median(each[n] for each in pairs) for n in (0, 1))
        ratio = statistics.median(ratios)
        missed |= ratio < aim
        print(
            f"{TASKS} tasks, concurrency {concurrency}    {ours:8.2f} s   harbor {peer:8.2f} s   "
            f"{ratio:5.1f}x  ({ratios[0]:.1f} to {ratios[-1]:.1f} in {ROUNDS} turns; at least "
            f"{aim:g}x)  {'MISSED' if ratio < aim else 'ok'}",
            flush=True,
        )
    return missed


def by_ale(folder: Path, tasks: Path, concurrency: int, name: str) -> float:
    """Seconds of `ale eval`, whose judge has graded every task."""
    out = folder / "evals" / name
    argv = [ALE, "eval", str(tasks), "--agent", "oracle", "--sandbox", "docker"]
    spent = seconds([*argv, "-n", str(concurrency), "--out", str(out)], folder)
    run = RunReader(next(out.glob("*/manifest.json")).parent)
    scores = [score for episode in run.episodes for score in episode.scores]
    assert [score.value for score in scores] == [1] * TASKS, scores
    assert not any(map(had_no_judge, scores)), scores
    return spent


def by_harbor(folder: Path, harbor: str, tasks: Path, concurrency: int, name: str) -> float:
    """Seconds of Harbor, whose trials have all ended well."""
    argv = [harbor, "run", "-p", str(tasks), "-a", "oracle", "-o", str(folder / "jobs"), "-y", "-q"]
    spent = seconds([*argv, "-n", str(concurrency), "--job-name", name], folder)
    result = json.loads((folder / "jobs" / name / "result.json").read_text())
    assert result["stats"]["n_errored_trials"] == 0, "harbor's own trials failed"
    return spent


def main() -> int:
    """Measure and print; 1 where an aim was missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if sys.argv[1:] == ["few"]:
            return int(against_harbor(folder))
        tasks = many_of_harbor(folder / "harbor", FOLDERS)
        missed = start_up(folder, "Harbor", tasks)
        tasks = many_of_terminal_bench(folder / "bench", FOLDERS)
        missed |= start_up(folder, "Terminal-Bench", tasks)
        missed |= against_harbor(folder)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
