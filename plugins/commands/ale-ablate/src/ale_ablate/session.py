"""One call of `ale ablate`: plan a grid, begin it, run what is missing, and say what came of it."""

import asyncio
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import click
from attrs import frozen

import ale
from ale.errors import InputError, Problem
from ale.runs import Registry
from ale.text import table
from ale_ablate.checking import CheckedCell, check_cells
from ale_ablate.comparing import Comparison
from ale_ablate.concluding import conclude
from ale_ablate.grid import Grid, cells_of, create, locked, read
from ale_ablate.running import Runner
from ale_ablate.tables import terminal


@frozen(kw_only=True)
class Planned:
    """A grid that has been checked and is not on disk yet."""

    grid: Grid
    checked: tuple[CheckedCell, ...]


def plan(
    config: Path,
    vary: Sequence[str],
    cells: Sequence[str],
    n_seeds: int,
    overrides: Sequence[str],
    registry: Registry,
) -> Planned:
    """Check every combination; nothing is written.

    Raises:
        InputError: with every problem of every combination.
    """
    _refuse_seed(overrides)
    made = cells_of(vary, cells)
    checked = check_cells(config, made, overrides, registry)
    now = datetime.now(UTC)
    run = checked[0].config["run"]
    name = str(run.get("name") or config.stem)
    where = Path(run.get("directory") or Path.cwd() / "runs")
    grid = Grid(
        path=where.resolve() / f"{now:%Y%m%d-%H%M%S}-ablate-{name}",
        name=name,
        created=now.isoformat(timespec="seconds"),
        source=str(config),
        overrides=tuple(overrides),
        cells=made,
        seeds=tuple(range(n_seeds)),
        versions=versions(registry),
    )
    return Planned(grid=grid, checked=tuple(checked))


def _refuse_seed(overrides: Sequence[str]) -> None:
    for override in overrides:
        if override.partition("=")[0] == "run.seed":
            hint = "--seeds says how many there are"
            said = "every run has a seed of its own"
            raise InputError([Problem(message=said, file="--set", path="run.seed", hint=hint)])


def versions(registry: Registry) -> Mapping[str, str]:
    """Of the core and of every plugin package."""
    found = {package.distribution: package.version for package in registry.packages}
    return {"ale-core": ale.__version__, **dict(sorted(found.items()))}


def describe(planned: Planned) -> str:
    """The grid in words, for ``--dry-run``."""
    grid, counts = planned.grid, [each.episodes for each in planned.checked]
    header = ["", "cell", "episodes per seed"]
    rows = [
        [str(number), each.cell.name, "as its starts say" if n is None else f"{n:,}"]
        for number, (each, n) in enumerate(zip(planned.checked, counts, strict=True), 1)
    ]
    known = [n for n in counts if n is not None]
    total = f"{len(grid.seeds) * sum(known):,} episodes"
    if len(known) < len(counts):
        total = f"at least {total}"
    n = len(grid.cells) * len(grid.seeds)
    return "\n".join(
        [
            table(header, rows, right=(0, 2)),
            "",
            f"{len(grid.cells)} cell(s) x {len(grid.seeds)} seed(s): {n} runs, {total}",
            f"into {grid.path}",
        ]
    )


def begin(planned: Planned) -> Grid:
    """Give a grid its folder. Raises as `create`."""
    create(planned.grid, [each.config for each in planned.checked])
    return read(planned.grid.path)


def start_afresh(grid: Grid, *, jobs: int, concurrency: int | None) -> NoReturn:
    """Become a process that runs this grid and has loaded nothing else.

    Checking has built every part of every cell: a model, say, whose memory the runs need.
    """
    arguments = ["ablate", "--resume", str(grid.path), "--jobs", str(jobs)]
    if concurrency is not None:
        arguments += ["-n", str(concurrency)]
    os.execv(sys.executable, [sys.executable, "-P", "-m", "ale", *arguments])  # noqa: S606


def go(grid: Grid, registry: Registry, *, jobs: int, concurrency: int | None) -> int:
    """Run what is missing, write and print what came of it.

    Returns:
        The exit status: 0; 1 where runs failed; 3 where episodes broke; 130 or 143 where it was
        interrupted.

    Raises:
        StoreError: another process runs this grid, or it can't be written.
    """

    def say(text: str) -> None:
        click.echo(text, err=True)

    now = versions(registry)
    changed = sorted(
        name for name in {*now, *grid.versions} if now.get(name) != grid.versions.get(name)
    )
    if changed:
        say(f"other versions than when the grid was begun: {', '.join(changed)}")
    n = len(grid.cells) * len(grid.seeds)
    say(f"{n} runs in {_shown(grid)}")
    runner = Runner(grid=grid, jobs=jobs, concurrency=concurrency, say=say)
    with locked(grid.path):
        asyncio.run(runner.go())
        comparison = conclude(grid)
    click.echo(ending(comparison, runner))
    return _status(comparison, runner)


def _status(comparison: Comparison, runner: Runner) -> int:
    if runner.ended_by is not None:
        return 128 + runner.ended_by
    if runner.failed or any(run.damage for run in comparison.runs):
        return 1
    return 3 if any(run.broken for run in comparison.runs) else 0


def ending(comparison: Comparison, runner: Runner) -> str:
    """The tables, what failed, where everything is, and what to type next."""
    lines = []
    if comparison.completed:
        lines += [terminal(comparison), ""]
    for failed in runner.failed:
        lines.append(f"failed: {failed.slot.title} (status {failed.code}): {failed.reason}")
    for run in comparison.runs:
        if run.damage:
            lines.append(f"damaged, and left out: {run.slot.title}: {run.damage}")
    n, done = len(comparison.runs), comparison.completed
    path = _shown(comparison.grid)
    word = "interrupted" if runner.ended_by is not None else "done" if done == n else "not complete"
    broken = sum(run.broken for run in comparison.runs)
    lines += [f"{word}: {done} of {n} runs completed"]
    if broken:
        lines.append(f"  broken episodes: {broken}  (no reward; each says why)")
    lines += ["stored in", f"  {path}", f"  {path}/report.html"]
    if done < n:
        lines += ["next", f"  ale ablate --resume {shlex.quote(path)}"]
    return "\n".join(lines)


def _shown(grid: Grid) -> str:
    path = os.path.relpath(grid.path)
    return path if not path.startswith("..") else str(grid.path)
