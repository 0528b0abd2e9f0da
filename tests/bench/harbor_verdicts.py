"""The same task folders by Harbor itself and by `ale run`: one line per task, both rewards.

    python tests/bench/harbor_verdicts.py [--agent oracle|nop] [--keep FOLDER] [PATH ...]

Runs the folders of the package's own tests and those of `odd_tasks`, or those at the paths that are
given. Needs Docker with docker compose 2, and the command `harbor` (its path may be given by
HARBOR). What counts is the reward as Harbor's mean has it, where an exception is 0, and whether
there was a verdict at all. Exit status 1 where a difference is not among those argued for.
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
from attrs import frozen

from ale_sandbox_container.testing_images import BUSYBOX, DEBIAN, CannotMakeError, provide

ALE = str(Path(sys.executable).with_name("ale"))
DATA = Path(__file__).parents[2] / "plugins" / "ale-tasks-harbor" / "tests" / "data"
CAPABILITIES = [
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID")
]
AGENTS = {"oracle": "oracle", "nop": "noop"}
"""Harbor's name and ours."""
SERVED = "ale-test-harbor-served:1"
DOCKERFILES = {
    odd_tasks.BASE: f"FROM {DEBIAN}\nCOPY --from={BUSYBOX} /bin/busybox /bin/busybox\n"
    "RUN mkdir /opt/applets && /bin/busybox --install -s /opt/applets\n"
    "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/applets\n"
    "WORKDIR /app\n",
    SERVED: f"FROM {odd_tasks.BASE}\n"
    'ENTRYPOINT ["/bin/sh", "-c", "mkdir -p /srv; cd /srv; echo hi >index.html; '
    'httpd -p 8090; exec \\"$@\\"", "start"]\n',
}
ARGUED = {
    "workdir-missing": "Harbor can run nothing in a folder that is not there; here it is made",
}
"""Task to why a difference is meant."""


@frozen(kw_only=True)
class Verdict:
    """Of one task, by one of the two."""

    reward: float | None
    """None where there was no verdict."""
    cause: str = ""

    def __str__(self) -> str:
        shown = "-" if self.reward is None else f"{self.reward:g}"
        return f"{shown} {self.cause}".strip()


def images() -> None:
    """Those that the tasks start from.

    Raises:
        CannotMakeError: why they can't be made here.
    """
    for image in (BUSYBOX, DEBIAN):
        provide(["docker"], image)
    for tag, text in DOCKERFILES.items():
        argv = ["docker", "build", "-q", "-t", tag, "-"]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CannotMakeError(done.stderr)


def gathered(paths: Sequence[Path], folder: Path) -> Path:
    """The tasks side by side. Harbor wants a bash, which the busybox of our own tests lacks."""
    tasks = folder / "tasks"
    if tasks.exists():
        return tasks
    if not paths:
        paths = [DATA / "harbor", odd_tasks.write(folder / "odd")]
    for path in paths:
        for one in [path] if (path / "task.toml").exists() else sorted(path.iterdir()):
            if (one / "task.toml").exists():
                shutil.copytree(one, tasks / one.name, dirs_exist_ok=True)
    for file in [*tasks.rglob("Dockerfile"), *tasks.rglob("*.toml"), *tasks.rglob("*.yaml")]:
        text = file.read_text()
        if BUSYBOX in text:
            file.write_text(text.replace(BUSYBOX, odd_tasks.BASE))
    return tasks


def open_to_all(tasks: Path, folder: Path) -> Path:
    """Those with a network. Without a helper image from its registry, Harbor ends its whole job at
    the first that has none."""
    chosen = folder / "open"
    for one in sorted(tasks.iterdir()):
        text = (one / "task.toml").read_text()
        if "no-network" not in text and "allow_internet = false" not in text:
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
        "sandbox": {"type": "docker", "capabilities": CAPABILITIES, "pull_silence_s": 5},
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
        said = " ".join([*([stop] if stop == "time_limit" else []), *cause.split()])
        found[episode["task_id"]] = Verdict(reward=episode["reward"], cause=said[:70])
    return found


def run(argv: Sequence[str], folder: Path, good: set[int]) -> None:
    """Run a command to its end."""
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in good:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def compared(theirs: Mapping[str, Verdict], ours: Mapping[str, Verdict]) -> int:
    """Print the table; how many tasks differ without an argument."""
    wrong = alike = 0
    none = Verdict(reward=None, cause="(not run)")
    for task in sorted({*theirs, *ours}):
        one, other = theirs.get(task, none), ours.get(task, none)
        if task not in theirs:
            print(f"{task:28}  {'(not run)':34}  {'':8}{other}")
            continue
        same = task in ours and (one.reward or 0.0) == (other.reward or 0.0)
        alike += same
        wrong += not same and task not in ARGUED
        mark = "same" if same else "argued" if task in ARGUED else "DIFFERS"
        print(f"{task:28}  {one!s:34}  {mark:8}{other}")
    print(f"{alike} of {len(theirs)} alike, {wrong} differ without an argument")
    return wrong


def main() -> int:
    """Run both and compare; 1 where they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--agent", choices=tuple(AGENTS), default="oracle")
    parser.add_argument("--keep", type=Path, help="a folder for both runs; a finished one is shown")
    chosen = parser.parse_args()
    harbor = os.environ.get("HARBOR") or shutil.which("harbor")
    if harbor is None:
        print("not compared: harbor is not at hand (HARBOR names its path)")
        return 0
    try:
        images()
    except (CannotMakeError, FileNotFoundError) as error:
        print(f"not compared: no Docker: {error}")
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = chosen.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        tasks = gathered(chosen.paths, folder)
        print(f"{'task':28}  {'harbor':34}  {'':8}ale   (agent {chosen.agent})")
        ours = by_ale(tasks, chosen.agent, folder)
        theirs = of_jobs(folder / "jobs", chosen.agent)
        if not theirs:
            theirs = by_harbor(harbor, open_to_all(tasks, folder), chosen.agent, folder)
        return int(compared(theirs, ours) > 0)


if __name__ == "__main__":
    sys.exit(main())
