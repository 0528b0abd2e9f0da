"""The same task folders by their own harness and by `ale run`: one line per task, both rewards.

    python tests/bench/harbor_verdicts.py [--format harbor|terminal-bench] [--agent oracle|nop]
                                          [--keep FOLDER] [PATH ...]

Runs the folders of the package's own tests and those of `odd_tasks` or `odd_bench_tasks`, or those
at the paths that are given. Needs Docker with docker compose 2, and the command `harbor` or `tb`
(HARBOR and TB may give their paths). What counts is the reward as the harness's mean has it, where
an exception is 0; the table says where one side has no verdict and the other a 0. Exit status 1
where a difference is not among those argued for.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import odd_tasks
import terminal_bench
from verdict import Verdict, compared

from ale_sandboxing.container_testing.images import BUSYBOX, DEBIAN, CannotMakeError, provide

ALE = str(Path(sys.executable).with_name("ale"))
DATA = Path(__file__).parents[2] / "plugins" / "tasks" / "ale-tasks-harbor" / "tests" / "data"
PRIVILEGES = {
    "capabilities": ["DOCKER_DEFAULT"],
    "new_privileges": True,
    **dict.fromkeys(("memory_mb", "processes", "cpu_s", "file_size_mb", "open_files")),
}
COMMANDS = {"harbor": "harbor", "terminal-bench": "tb"}
"""By the format of a folder."""
AGENTS = {"oracle": "oracle", "nop": "noop"}
"""Harbor's name and ours."""
OWN = ("harbor", "compose", "beyond")
"""Folders of our own tests."""
ABOUT_NETWORK = {"allowlist", "network-for-agent", "network-for-tests", "network-none"}
"""Not run by Harbor. What other tasks check is the same with a network: both run them with one."""
OPENED = {'network_mode = "no-network"': "", "allow_internet = false": "allow_internet = true"}
SERVED = "ale-test-harbor-served:1"
DOCKERFILES = {
    odd_tasks.BASE: f"FROM {DEBIAN}\nCOPY --from={BUSYBOX} /bin/busybox /bin/busybox\n"
    "RUN mkdir /opt/applets && /bin/busybox --install -s /opt/applets\n"
    "RUN rmdir /srv\n"
    "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/applets\n"
    "WORKDIR /app\n",
    SERVED: f"FROM {odd_tasks.BASE}\n"
    'ENTRYPOINT ["/bin/sh", "-c", "mkdir -p /srv; cd /srv; echo hi >index.html; '
    'httpd -p 8090; exec \\"$@\\"", "start"]\n',
}
ARGUED = {
    "workdir-missing": "Harbor can run nothing in a folder that is not there; here it is made",
    "workdir": "as above",
    "crlf-tests": "Harbor has no reward; here, a folder whose tests can't start is left out",
    "store": "it names CPUS and MEMORY, which Harbor 0.24 no longer sets",
    "service-that-ends": "docker compose 1 does not wait, and does not see it; 2 does",
    "service-that-fails": "as above",
}
"""Task to why a difference is meant."""


def _there(tag: str) -> bool:
    argv = ["docker", "image", "inspect", tag]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def images(dockerfiles: Mapping[str, str]) -> None:
    """Those that the tasks start from, where they are not there.

    Raises:
        CannotMakeError: why they can't be made here.
    """
    for image in (BUSYBOX, DEBIAN):
        provide(["docker"], image)
    for tag, text in dockerfiles.items():
        if _there(tag):
            continue
        argv = ["docker", "build", "-q", "-t", tag, "-"]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotMakeError(done.stderr)


def gathered(paths: Sequence[Path], folder: Path) -> Path:
    """The tasks side by side. Harbor wants a bash, and a workspace that is there: the images of our
    own tests lack them."""
    tasks = folder / "tasks"
    if tasks.exists():
        return tasks
    if not paths:
        paths = [*(DATA / name for name in OWN), odd_tasks.write(folder / "odd")]
    for path in paths:
        for one in [path] if (path / "task.toml").exists() else sorted(path.iterdir()):
            if (one / "task.toml").exists():
                shutil.copytree(one, tasks / one.name, dirs_exist_ok=True)
    for one in tasks.iterdir():
        odd_tasks.seen(one)
    for file in [*tasks.rglob("Dockerfile"), *tasks.rglob("*.toml"), *tasks.rglob("*.yaml")]:
        _adapt(file)
    return tasks


def _adapt(file: Path) -> None:
    text = file.read_text().replace(BUSYBOX, odd_tasks.BASE).replace(DEBIAN, odd_tasks.BASE)
    if file.name == "task.toml" and file.parent.name not in ABOUT_NETWORK:
        for closed, opened in OPENED.items():
            text = text.replace(closed, opened)
    file.write_text(text, newline="")


def open_to_all(tasks: Path, folder: Path) -> Path:
    """Those that Harbor can run without a helper image of its registry: it ends its whole job at
    the first that needs one."""
    chosen = folder / "open"
    for one in sorted(tasks.iterdir()):
        if one.name not in ABOUT_NETWORK:
            shutil.copytree(one, chosen / one.name, dirs_exist_ok=True)
    return chosen


def by_harbor(harbor: str, tasks: Path, agent: str, folder: Path) -> Mapping[str, Verdict]:
    """Harbor's verdict on each."""
    argv = [harbor, "run", "-p", str(tasks), "-a", agent, "-o", str(folder / "jobs"), "-y", "-q"]
    run([*argv, "-n", "4", "--job-name", agent], folder, {0})
    return of_jobs(folder / "jobs", agent)


def of_jobs(jobs: Path, agent: str) -> Mapping[str, Verdict]:
    """What Harbor has said, in all jobs of an agent."""
    found = {}
    for file in jobs.glob(f"{agent}*/*/result.json"):
        result = json.loads(file.read_text())
        rewards = (result["verifier_result"] or {}).get("rewards")
        cause = (result["exception_info"] or {}).get("exception_type", "")
        if cause == "CancelledError":
            continue
        # The full name of a folder; what names the trial is cut.
        name = Path(result["task_id"]["path"]).name
        found[name] = Verdict(reward=single(rewards), cause=cause)
    return found


def single(rewards: Mapping[str, float] | None) -> float | None:
    """Of several, the one called ``reward``, else their mean: Harbor itself keeps them apart."""
    if not rewards:
        return None
    return rewards["reward"] if "reward" in rewards else sum(rewards.values()) / len(rewards)


def by_ale(tasks: Path, agent: str, folder: Path) -> Mapping[str, Verdict]:
    """Ours."""
    name = folder / f"{agent}.yaml"
    whole = {
        "tasks": {"type": "harbor", "path": str(tasks)},
        "sandbox": {"type": "docker", **PRIVILEGES, "pull_silence_s": 5},
        "agent": {"type": AGENTS[agent]},
        "run": {"concurrency": 4, "retries": 0, "directory": str(folder / "runs" / agent)},
    }
    name.write_text(json.dumps(whole))
    if not (folder / "runs" / agent).exists():
        run([ALE, "run", str(name)], folder, {0, 3})
    found = {}
    (file,) = (folder / "runs" / agent).glob("*/episodes.jsonl")
    for line in file.read_text().splitlines():
        episode = json.loads(line)
        cause = (episode["failure"] or {}).get("message") or ""
        if not cause and episode["reward"] not in (0, 1):
            cause = episode["scores"][0]["detail"]
        stop = episode["trajectory"]["stop"]["reason"]
        shown = " ".join([*([stop] if stop == "time_limit" else []), *cause.split()])
        found[episode["task_id"]] = Verdict(reward=episode["reward"], cause=shown[:70])
    return found


def run(argv: Sequence[str], folder: Path, good: set[int]) -> None:
    """Run a command to its end."""
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in good:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def of_harbor(paths: Sequence[Path], agent: str, folder: Path, command: str) -> int:
    """Harbor's folders by both; how many differ without an argument."""
    tasks = gathered(paths, folder)
    ours = by_ale(tasks, agent, folder)
    theirs = of_jobs(folder / "jobs", agent)
    if not theirs:
        theirs = by_harbor(command, open_to_all(tasks, folder), agent, folder)
    return compared(theirs, ours, ARGUED)


def of_bench(paths: Sequence[Path], agent: str, folder: Path, command: str) -> int:
    """Terminal-Bench's folders by both; how many differ without an argument."""
    tasks = terminal_bench.gathered(paths, folder, DATA)
    ours = by_ale(tasks, agent, folder)
    theirs = terminal_bench.verdicts(command, tasks, agent, folder, run)
    return compared(theirs, ours, terminal_bench.ARGUED)


def main() -> int:
    """Run both and compare; 1 where they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--format", choices=tuple(COMMANDS), default="harbor")
    parser.add_argument("--agent", choices=tuple(AGENTS), default="oracle")
    parser.add_argument("--keep", type=Path, help="a folder for both runs; a finished one is shown")
    chosen = parser.parse_args()
    name = COMMANDS[chosen.format]
    command = os.environ.get(name.upper()) or shutil.which(name)
    if command is None:
        print(f"not compared: {name} is not at hand ({name.upper()} names its path)")
        return 0
    bench = chosen.format == "terminal-bench"
    try:
        images(terminal_bench.DOCKERFILES if bench else DOCKERFILES)
    except (CannotMakeError, FileNotFoundError) as error:
        print(f"not compared: no Docker: {error}")
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{'task':28}  {name:34}  {'':8}ale   (agent {chosen.agent})", flush=True)
        both = of_bench if bench else of_harbor
        return int(both(chosen.paths, chosen.agent, folder, command) > 0)


if __name__ == "__main__":
    sys.exit(main())
