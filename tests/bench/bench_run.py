"""A whole run: 200 episodes of 10 shell commands with a scripted model in the local sandbox.

The bare operation is the same 2,000 commands in 200 fresh shells, two at once, with nothing around
them: no grading, no records. Both are run in turn, and what is shown are medians. A command costs
what the machine's kernel takes to start a process, so the aim is either a rate or, where the bare
commands alone would come near to it, a ratio to them. CPU is of the whole command, with its start
and the processes that it runs; where it goes is shown by the same run of four episodes, which is
the start, and by one that is graded by a look at a file. Memory is the peak of the process, for 200
episodes and for 2,000.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ALE = str(Path(sys.executable).parent / "ale")
EPISODES = 200
GROUP = 4
COMMANDS = [
    "mkdir -p work && cd work",
    "printf 'b\\na\\nc\\n' > names.txt",
    "sort names.txt > sorted.txt",
    "cat sorted.txt",
    "wc -l < sorted.txt",
    "grep -c a names.txt",
    "cp sorted.txt copy.txt",
    "ls",
    "head -n 1 copy.txt",
    "cmp sorted.txt copy.txt",
]
# What commands get from the local sandbox.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
ROUNDS = 5
RATE_AIM = 100.0
# docs/why/cost-of-an-episode.md says what the commands, the grading and ale itself take.
RATIO_AIM = 1.6
MEMORY_AIM = 1.1


BY_COMMAND = {"type": "command_exit_code", "command": "cmp work/sorted.txt work/copy.txt"}
BY_FILE = {"type": "file_contains", "path": "work/copy.txt", "text": "a"}


def write_config(
    folder: Path,
    check: dict[str, str],
    episodes: int = EPISODES,
    commands: Sequence[str] = COMMANDS,
) -> Path:
    """Tasks, a script that runs the commands, and a config."""
    (folder / "tasks").mkdir(parents=True)
    for i in range(episodes // GROUP):
        task = {"id": f"sort-{i:04d}", "goal": "Sort the names.", "success_criteria": [check]}
        (folder / "tasks" / f"sort-{i:04d}.yaml").write_text(json.dumps(task))
    turns = [
        {"calls": [{"name": "shell", "arguments": {"command": line}}]} for line in commands
    ] + [{"calls": [{"name": "finish", "arguments": {"summary": "sorted"}}]}]
    (folder / "script.yaml").write_text(json.dumps({"default": turns}))
    config = {
        "tasks": {"type": "tbp", "path": "tasks"},
        "sandbox": {"type": "local"},
        "llm": {"type": "scripted", "script": "script.yaml"},
        "agent": {"type": "iflow"},
        "observers": [],
        "run": {"directory": "runs", "rollouts": GROUP},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder / "config.yaml"


def ale_run(config: Path, episodes: int) -> tuple[float, float, float]:
    """Seconds of the run, CPU seconds of the process and its children, peak memory in MiB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [ALE, "run", str(config), "--set", f"tasks.limit={episodes // GROUP}", "-n", "8"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _resident_kib(process.pid))
        time.sleep(0.05)
    if process.returncode != 0:
        raise SystemExit(f"ale run exited with {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    newest = max((config.parent / "runs").iterdir())
    outcome = json.loads((newest / "manifest.json").read_text())["outcome"]
    if outcome["n_succeeded"] != episodes:
        raise SystemExit(f"only {outcome['n_succeeded']} of {episodes} succeeded")
    return outcome["seconds"], spent, peak / 1024


def _resident_kib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(found[0]) if found else 0


def bare_run() -> tuple[float, float]:
    """The same commands in fresh shells, two at once: seconds, and CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_bare_episode, range(EPISODES)))
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _bare_episode(_: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert shell.stdin is not None
        assert shell.stdout is not None
        for line in COMMANDS:
            shell.stdin.write(f"{{ {line}; }} >/dev/null\necho done\n".encode())
            shell.stdin.flush()
            shell.stdout.readline()
        shell.stdin.close()
        shell.wait()
        shell.stdout.close()


def main() -> int:
    """Measure and print; 1 where an aim was missed."""
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(Path(folder) / "by-command", BY_COMMAND)
        by_file = write_config(Path(folder) / "by-file", BY_FILE)
        rounds = [
            (
                bare_run(),
                ale_run(config, EPISODES),
                ale_run(config, GROUP)[1],
                ale_run(by_file, EPISODES)[1],
            )
            for _ in range(ROUNDS)
        ]
        ten = write_config(Path(folder) / "ten-times", BY_COMMAND, 10 * EPISODES)
        _, _, memory_ten = ale_run(ten, 10 * EPISODES)
    bare, bare_cpu = (
        statistics.median(column) for column in zip(*(r[0] for r in rounds), strict=True)
    )
    took, cpu, memory = (
        statistics.median(column) for column in zip(*(r[1] for r in rounds), strict=True)
    )
    start, without = (statistics.median(column) for column in list(zip(*rounds, strict=True))[2:])
    rate, ratio, growth = EPISODES / took, took / bare, memory_ten / memory
    rows = [
        ("episodes a second", f"{rate:.0f}", f"{EPISODES / bare:.0f}", f"{1 / ratio:.2f}"),
        ("seconds", f"{took:.2f}", f"{bare:.2f}", f"{ratio:.2f}"),
        ("cpu seconds", f"{cpu:.2f}", f"{bare_cpu:.2f}", f"{cpu / bare_cpu:.2f}"),
        ("cpu ms an episode", _ms(cpu), _ms(bare_cpu), f"{cpu / bare_cpu:.2f}"),
        ("MiB at 2,000 / at 200", f"{memory_ten:.1f}", f"{memory:.1f}", f"{growth:.2f}"),
    ]
    print(f"{'':<24}{'measured':>10}{'bare':>10}{'ratio':>8}")
    for name, measured, against, quotient in rows:
        print(f"{name:<24}{measured:>10}{against:>10}{quotient:>8}")
    quick, near, flat = rate >= RATE_AIM, ratio <= RATIO_AIM, growth <= MEMORY_AIM
    print("cpu seconds, as multiples of the bare commands")
    parts = {"the start": start, "grading, above a look": cpu - without, "commands": bare_cpu}
    for name, part in {**parts, "the rest of ale": cpu - sum(parts.values())}.items():
        print(f"  {name:<22}{part:>10.2f}{part / bare_cpu:>18.2f}")
    print(f"rate, aim {RATE_AIM:.0f} a second: {'ok' if quick else 'missed'}")
    print(f"or time, aim {RATIO_AIM} of the bare commands: {'ok' if near else 'missed'}")
    print(f"one of the two: {'ok' if quick or near else 'MISSED'}")
    print(f"memory, aim a ratio of {MEMORY_AIM}: {'ok' if flat else 'MISSED'}")
    return int(not ((quick or near) and flat))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds / EPISODES:.1f}"


if __name__ == "__main__":
    sys.exit(main())
