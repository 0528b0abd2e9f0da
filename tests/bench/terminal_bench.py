"""Terminal-Bench's own harness over task folders, and what it says of each.

Its oracle finds a solution by the task's instruction, and its harness a container by the name that
the compose file gives: a folder that leaves these out gets them, before both sides run it.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import odd_bench_tasks
import yaml
from verdict import Verdict

from ale_sandboxing.container_testing.images import BUSYBOX, DEBIAN

OWN = ("terminal-bench", "compose")
"""Folders of our own tests."""
DOCKERFILES = {
    odd_bench_tasks.BASE: f"FROM {DEBIAN}\n"
    "RUN apt-get update && apt-get install -y --no-install-recommends tmux asciinema\n"
    f"COPY --from={BUSYBOX} /bin/busybox /usr/local/bin/busybox\n"
    "RUN for one in httpd wget; do ln -s busybox /usr/local/bin/$one; done\n"
    "RUN rmdir /srv\n"
    "WORKDIR /app\n"
}
"""Those that must be there; the harness works in tmux and records with asciinema."""
ARGUED: Mapping[str, str] = {
    "a-terminal": "here the tests have no terminal",
    "profile-of-the-image": "here the tests' shell reads no profile, which the agent could change",
    "said-twice": "there the last line counts, which code under test can print",
    "summary-without-tests": "there no test at all is a pass",
}
"""Task to why a difference is meant."""
_NAMED = "    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}\n"


def gathered(paths: Sequence[Path], folder: Path, data: Path) -> Path:
    """The tasks side by side, as the harness needs them."""
    tasks = folder / "tasks"
    if tasks.exists():
        return tasks
    for path in paths or [*(data / name for name in OWN), odd_bench_tasks.write(folder / "odd")]:
        for one in [path] if (path / "task.yaml").exists() else sorted(path.iterdir()):
            if (one / "task.yaml").exists():
                shutil.copytree(one, tasks / one.name, dirs_exist_ok=True)
                _complete(tasks / one.name)
    return tasks


def _complete(task: Path) -> None:
    compose = task / "docker-compose.yaml"
    if not compose.exists():
        compose.write_text(odd_bench_tasks.COMPOSE)
    if "container_name" not in compose.read_text():
        compose.write_text(compose.read_text().replace("  client:\n", f"  client:\n{_NAMED}"))
    for file in (compose, task / "Dockerfile"):
        if file.exists():
            text = file.read_text()
            for base in (BUSYBOX, DEBIAN):
                text = text.replace(base, odd_bench_tasks.BASE)
            file.write_text(text)
    config = task / "task.yaml"
    given = yaml.safe_load(config.read_text())
    whole = {"difficulty": "easy", **given, "instruction": f"Do {task.name}."}
    config.write_text(yaml.safe_dump(whole))


def verdicts(
    command: str, tasks: Path, agent: str, folder: Path, run: Callable[..., None]
) -> Mapping[str, Verdict]:
    """What the harness says of each task; one that has run is not run again."""
    out = folder / "tb"
    if not (out / agent / "results.json").exists():
        argv = [command, "run", "-p", str(tasks), "-a", agent, "--output-path", str(out)]
        # Its cleaning up would remove the images that the tasks start from.
        run([*argv, "--run-id", agent, "--n-concurrent", "3", "--no-cleanup"], folder, {0})
    found = {}
    for result in json.loads((out / agent / "results.json").read_text())["results"]:
        resolved, mode = result["is_resolved"], result["failure_mode"]
        cause = "" if mode in ("unset", "none") else mode
        reward = None if resolved is None else float(resolved)
        found[result["task_id"]] = Verdict(reward=reward, cause=cause)
    return found
