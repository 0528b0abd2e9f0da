"""Given clock and ids, two runs with the real sandbox and agent are byte-identical."""

import asyncio
import itertools
import shutil
from pathlib import Path
from typing import Any

from ale._config import load_config
from ale._registry import Registry
from ale._run.start import Surroundings, check_run, closing_parts, start
from ale.testing.fakes import ManualClock


def surroundings(environ: dict[str, str]) -> Surroundings:
    """Clocks that stand still, and ids that are counted."""
    numbers = itertools.count()
    clocks = {
        "clock": ManualClock(),
        "monotonic": ManualClock(0.0),
        "new_id": lambda: f"id{next(numbers):04}",
    }
    return Surroundings(registry=Registry.installed(), environ=environ, clocks=clocks)


async def run_once(config: Path, environ: dict[str, str]) -> dict[str, bytes]:
    """Every file of a run, by name; the run itself is removed."""
    outside = surroundings(environ)
    run = start(check_run(load_config(config, outside.registry), "same", outside), outside)
    async with closing_parts(run):
        finished = await run.execute()
    assert (finished.outcome, finished.n_broken) == ("completed", 0)
    files = {
        str(path.relative_to(run.store.path)): path.read_bytes()
        for path in run.store.path.rglob("*.json*")
    }
    shutil.rmtree(run.store.path)
    return files


async def test_two_runs_are_the_same_to_the_byte(workshop: Any, shell: Any) -> None:
    for number in range(3):
        workshop.task(f"t{number}")
    lines = shell("pwd; ls", "echo $RANDOM > /dev/null; touch done", "sleep 100 &")
    workshop.scripted(
        {"default": lines, "tokens": True},
        run={"rollouts": 2, "concurrency": 1, "directory": str(workshop.folder / "runs")},
        observers=[],
    )
    config = workshop.folder / "run.yaml"
    first = await run_once(config, workshop.environ)
    await asyncio.sleep(0.01)
    second = await run_once(config, workshop.environ)
    assert first.keys() == {
        "manifest.json",
        "tasks.jsonl",
        "episodes.jsonl",
        "events.jsonl",
        "credits/00000.jsonl",
    }
    for name in first:
        assert first[name] == second[name], name
    assert first["episodes.jsonl"].count(b"\n") == 6
