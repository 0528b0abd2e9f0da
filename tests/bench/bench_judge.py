"""Grading in a judge against grading in the agent's own sandbox, in turns in one run.

The reference solutions of trivial task folders in docker and podman, and a trivial command in
bubblewrap, one at a time; medians of the seconds of the stage ``grading`` and of whole episodes.
Without a judge means that the sandbox says it can open none. Exit status 1 where an aim is missed.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import ale
from ale.errors import AleError, UnsupportedError
from ale_sandbox_bubblewrap.sandbox import BubblewrapSandbox
from ale_sandboxing.container.sandbox import ContainerSandbox
from ale_sandboxing.container_testing.images import DEBIAN, CannotMakeError, provide

AIMS = {"docker": 1.5, "podman": 1.5, "bubblewrap": 4.0}
"""Times; in bubblewrap, where a grading takes 20 ms, a fresh sandbox alone takes longer."""
ROUNDS = 3
TASKS = 8
PRIVILEGES = {
    "capabilities": ["DOCKER_DEFAULT"],
    "new_privileges": True,
    **dict.fromkeys(("memory_mb", "processes", "cpu_s", "file_size_mb", "open_files")),
}
FOLDER = {
    "task.toml": f'[environment]\ndocker_image = "{DEBIAN}"\nworkdir = "/app"\n',
    "instruction.md": "Write hello to out.txt.\n",
    "solution/solve.sh": "#!/bin/bash\necho hello >out.txt\n",
    "tests/test.sh": "#!/bin/bash\n"
    "if grep -qx hello out.txt; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n",
}
COMMAND = (
    "goal: Write hello to out.txt.\nsolution: [echo hello >out.txt]\n"
    "success_criteria: [{type: command_exit_code, command: grep -qx hello out.txt}]\n"
)


def config(folder: Path, engine: str) -> dict[str, Any]:
    """A config with its tasks."""
    for n in range(TASKS):
        if engine == "bubblewrap":
            path = folder / engine / f"t{n}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"id: t{n}\n{COMMAND}")
            continue
        for name, text in FOLDER.items():
            path = folder / engine / f"t{n}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    own: Mapping[str, Any] = {} if engine == "bubblewrap" else PRIVILEGES
    source = "tbp" if engine == "bubblewrap" else "harbor"
    return {
        "tasks": {"type": source, "path": str(folder / engine)},
        "sandbox": {"type": engine, **own},
        "agent": {"type": "oracle"},
        "run": {"concurrency": 1, "directory": str(folder / "runs")},
    }


@contextmanager
def no_judge() -> Iterator[None]:
    """Meanwhile no sandbox opens one."""

    def refused(self: object, without: object = ()) -> Any:
        raise UnsupportedError("left out for a comparison")

    async def nothing(self: object) -> None:
        return

    methods: dict[str, Any] = {"open_judge": refused, "prepare_judge": nothing}
    with (
        mock.patch.multiple(ContainerSandbox, **methods),
        mock.patch.multiple(BubblewrapSandbox, **methods),
    ):
        yield


def medians(settings: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of grading and of an episode, one run."""
    run = ale.run(dict(settings))
    spent = [episode.seconds for episode in run.episodes]
    assert all(episode.reward == 1 for episode in run.episodes), run.directory
    return (
        statistics.median(each["grading"] for each in spent),
        statistics.median(sum(each.values()) for each in spent),
    )


def compared(folder: Path, engine: str) -> float:
    """Print the figures of an engine; how many times as long a grading takes."""
    settings = config(folder, engine)
    judged, plain = [], []
    for _ in range(ROUNDS):
        judged.append(medians(settings))
        with no_judge():
            plain.append(medians(settings))
    grading, whole = (statistics.median(each[n] for each in judged) for n in (0, 1))
    before, all_before = (statistics.median(each[n] for each in plain) for n in (0, 1))
    ratio = grading / before
    print(
        f"{engine:11} grading {before:.3f} s, with a judge {grading:.3f} s ({ratio:.2f} times, "
        f"aim {AIMS[engine]:g}); episode {all_before:.3f} s, {whole:.3f} s "
        f"({whole / all_before:.2f} times)"
    )
    return ratio


def main() -> None:
    """All engines that this machine has."""
    missed = []
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        for engine in sys.argv[1:] or ("docker", "podman", "bubblewrap"):
            try:
                if engine != "bubblewrap":
                    provide([engine], DEBIAN)
                missed += [engine] if compared(Path(name), engine) > AIMS[engine] else []
            except (CannotMakeError, AleError) as error:
                print(f"{engine:11} not measured: {error}")
    if missed:
        sys.exit(f"aim missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
