"""Run the solutions of `rows` in docker, by the list of tools alone and with a badge.

For the table in docs/verdicts.md:

    python -m tests.study.unseen DIR

DIR gets the tasks, their validation and the runs; what is there already is not made again. It takes
about twenty minutes on two cores, and needs pip for pytest and pycodestyle.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.e2e.harbor_tasks import PRIVILEGES

from ale.runs import RunReader
from ale_sandboxing.container_testing.images import DEBIAN, provide

from .row import Row
from .rows import ROWS

_IMAGE = "ale-unseen:1"
_KINDS = ("reference", "honest1", "honest2", "plain", "clever")
_WAYS = ("list", "badge")
_TASK = '[metadata]\nauthor_name = "a reviewer"\n[agent]\ntimeout_sec = 300.0\n'
_TASK += "[verifier]\ntimeout_sec = 120.0\n"
_AGENT = '''
"""An agent that runs the solution given for a task."""

import json
import shlex
from pathlib import Path

from ale.plugin import Component, hookimpl
from ale.types import Limits
from ale_agent_oracle.options import OracleOptions
from ale_agent_oracle.oracle import Commands


class Agent:
    limits = Limits(tool_timeout_s=120, time_limit_s=300)

    def __init__(self, monotonic):
        self._monotonic = monotonic

    async def run(self, context):
        given = json.loads(Path(__file__).with_suffix(".json").read_text())
        command = "bash -c " + shlex.quote(given[context.task.id.rpartition("/")[2]])
        return await Commands(OracleOptions(), [command], self._monotonic, context).run()


@hookimpl
def ale_agents():
    build = lambda options, context: Agent(context.monotonic)
    return [Component("row", None, build, summary="Runs a given solution.")]
'''


def solutions(row: Row) -> Mapping[str, str]:
    """All of a task, by kind."""
    found = (row.reference, *row.honest, row.plain, row.clever)
    return dict(zip(_KINDS, found, strict=True))


def write(root: Path) -> None:
    """Write the tasks, a plugin for each kind of solution, and the config to validate them with."""
    for name, row in ROWS.items():
        for path, text in _files(row).items():
            target = root / "tasks" / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    for kind in _KINDS:
        given = {name: solutions(row)[kind] for name, row in ROWS.items()}
        (root / f"{kind}.json").write_text(json.dumps(given))
        (root / f"{kind}.py").write_text(_AGENT)
    (root / "oracle.json").write_text(json.dumps(_config(root)))


def _files(row: Row) -> Mapping[str, str]:
    steps = f"RUN {row.steps}\n" if row.steps else ""
    image = {path if path[0] == "/" else f"/app/{path}": text for path, text in row.image.items()}
    tests = {f"tests/{path}": text.lstrip("\n") for path, text in row.tests.items()}
    return {
        "task.toml": _TASK,
        "instruction.md": f"{row.goal}\n",
        "solution/solve.sh": f"#!/bin/bash\n{row.reference}\n",
        "environment/Dockerfile": f"FROM {_IMAGE}\nWORKDIR /app\nCOPY files/ /\n{steps}",
        "environment/files/app/.keep": "",
        **{f"environment/files{path}": text for path, text in image.items()},
        **tests,
        "tests/test.sh": f"#!/bin/bash\n{tests['tests/test.sh']}",
    }


def _config(root: Path, **others: Any) -> Mapping[str, Any]:
    return {
        "tasks": {"type": "harbor", "path": str(root / "tasks")},
        "sandbox": {"type": "docker", **PRIVILEGES, "pull_silence_s": 5},
        "agent": {"type": "oracle"},
        "run": {"concurrency": 2, "retries": 0, "stop_after_broken": None},
        **others,
    }


def make_image(root: Path) -> None:
    """Make the image of all tasks: the small Debian of the tests with pytest, pycodestyle, make."""
    provide(["docker"], DEBIAN)
    site = root / "image" / "site"
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(site)]
    subprocess.run([*pip, "pytest", "pycodestyle"], check=True)
    shutil.copy(shutil.which("make") or "make", site.parent)
    (site.parent / "Dockerfile").write_text(
        f"FROM {DEBIAN}\nCOPY site/ /usr/lib/python3/dist-packages/\nCOPY make /usr/bin/make\n"
    )
    subprocess.run(["docker", "build", "-q", "-t", _IMAGE, str(site.parent)], check=True)


def validate(root: Path) -> None:
    """Validate the tasks, whichever is refused."""
    given = ["-k", "1", "--badge", str(root / "badge.json"), "--out", str(root / "validation")]
    subprocess.run(["ale", "validate", str(root / "oracle.json"), *given], check=False)


def run(root: Path, way: str, kind: str) -> None:
    """Run a kind of solution, also of tasks that are refused: their rows are counted apart."""
    place = root / "runs" / f"{way}-{kind}"
    if place.exists():
        return
    tasks = _config(root)["tasks"]
    used = str(root / "validation" / "used.json")
    if way == "badge":
        tasks = {"type": "validated", "badge": used, "tasks": tasks}
    plugins = [str(root / f"{kind}.py")]
    config = root / f"{way}-{kind}.json"
    config.write_text(
        json.dumps(_config(root, tasks=tasks, agent={"type": "row"}, plugins=plugins))
    )
    subprocess.run(["ale", "run", str(config), "--directory", str(place)], check=False)


def outcomes(root: Path, way: str, kind: str) -> Iterator[tuple[str, str, str]]:
    """Task, outcome and notes of each solution of a kind."""
    for episode in RunReader(root / "runs" / f"{way}-{kind}").episodes:
        name = episode.task_id.rpartition("/")[2]
        if episode.failure is not None:
            yield name, "broken", episode.failure.message
            continue
        notes = [line for line in episode.scores[0].detail.splitlines() if line.startswith("[")]
        yield name, "contested" if episode.contested else f"{episode.reward:g}", " ".join(notes)


def table(root: Path) -> None:
    """Print every outcome, and what came of each kind in tasks that are valid and in others."""
    badge = json.loads((root / "badge.json").read_text())["tasks"]
    for way in _WAYS:
        for kind in _KINDS:
            counts: dict[str, dict[str, int]] = {"valid": {}, "refused": {}}
            for name, outcome, notes in outcomes(root, way, kind):
                counted = counts["valid" if badge[name]["valid"] else "refused"]
                counted[outcome] = counted.get(outcome, 0) + 1
                sys.stdout.write(f"{way} {kind} {outcome:9} {name}: {notes[:300]}\n")
            sys.stdout.write(f"{way} {kind}: {counts}\n\n")


def main() -> None:
    """Make whatever is missing, and print the table."""
    root = Path(sys.argv[1]).resolve()
    root.mkdir(parents=True, exist_ok=True)
    make_image(root)
    write(root)
    validate(root)
    for way in _WAYS:
        for kind in _KINDS:
            run(root, way, kind)
    table(root)


if __name__ == "__main__":
    main()
