"""One call of `ale ablate`: plan a grid, create it, run what is missing, print the results."""

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import attrs
import click
from attrs import evolve, frozen

from ale.errors import InputError, PluginError
from ale.runs import PARTS, Registry, lock, versions
from ale.text import counted, table
from ale_ablate.checking import CheckedCell, check_cells, warned_once
from ale_ablate.comparing import Comparison
from ale_ablate.concluding import conclude
from ale_ablate.controls import Controls, check_arms, controls_of
from ale_ablate.grid import Cell, Grid, Takes, cells_of, create, read
from ale_ablate.notes import notes, stored_notes
from ale_ablate.running import Runner
from ale_ablate.sweeping import FOLDER as SWEEP
from ale_ablate.sweeping import choose, sweep_of, values_of
from ale_ablate.tables import terminal


@frozen(kw_only=True)
class Planned:
    """A grid that has been checked and is not on disk yet."""

    grid: Grid
    checked: tuple[CheckedCell, ...]
    sweep: "Planned | None" = None
    """What chooses a value for each cell before."""


@warned_once()
def plan(
    config: Path,
    vary: Sequence[str],
    cells: Sequence[str],
    n_seeds: int,
    overrides: Sequence[str],
    registry: Registry,
    *,
    controls: bool = False,
    sweep: str | None = None,
    sweep_seeds: int = 2,
) -> Planned:
    """Check every combination; nothing is written.

    Args:
        controls: add the controls of the first combination.
        sweep: ``KEY=VALUE,...``: choose one of the values for each combination before.
        sweep_seeds: how many runs of each value that takes.

    Raises:
        InputError: with every problem of every combination.
    """
    _refuse_seed(overrides)
    installed = versions(registry)  # before the config's own plugin files are added to it
    values = () if sweep is None else values_of(sweep)
    made = cells_of(vary, cells, _takes(registry))
    option = ", ".join(name for name, given in (("--vary", vary), ("--cell", cells)) if given)
    checked = check_cells(config, made, overrides, registry, option or "--set")
    found = Controls(cells={}, branches=False)
    if controls:
        found = controls_of(checked[0].config)
        check_arms([cell.overrides for cell in made], found)
        more = control_cells(made, found)
        made = (*made, *more)
        checked += check_cells(config, more, overrides, registry)
    if found.branches:  # from the checkpoint after the demonstrations
        first = checked[0]
        kept = {**first.config["run"], "keep_checkpoints": None}
        checked[0] = evolve(first, config={**first.config, "run": kept})
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
        versions=installed,
        branches=found.branches,
        notes=found.notes,
        sweep=values,
    )
    before = None
    if values:
        swept = sweep_of(grid, sweep_seeds)
        every = check_cells(config, swept.cells, overrides, registry, "--sweep")
        before = Planned(grid=swept, checked=tuple(every))
    return Planned(grid=grid, checked=tuple(checked), sweep=before)


def control_cells(arms: Sequence[Cell], controls: Controls) -> tuple[Cell, ...]:
    """The cells of the controls: the first arm with a control's values over its own."""
    first = arms[0].overrides
    return tuple(
        Cell.of(number, (*first, *overrides), name)
        for number, (name, overrides) in enumerate(controls.cells.items(), len(arms) + 1)
    )


def _takes(registry: Registry) -> Takes:
    def takes(section: str, type_: str, option: str) -> bool | None:
        if section not in PARTS or option == "type":
            return None
        try:
            options = registry.find(section, type_).component.options
        except PluginError:
            return None  # the check reports it
        return options is not None and option in attrs.fields_dict(options)

    return takes


def _refuse_seed(overrides: Sequence[str]) -> None:
    for override in overrides:
        if override.partition("=")[0] == "run.seed":
            hint = "set the number of seeds with --seeds"
            message = "every run has its own seed"
            raise InputError.of(message, file="--set", path="run.seed", hint=hint)


_LATER = "counted as they run"
"""The number of episodes where it is decided during the run, as by a start scheme."""


def describe(planned: Planned) -> str:
    """The plan of the grid, for ``--dry-run``."""
    grid, counts = planned.grid, [each.episodes for each in planned.checked]
    header = ["", "cell", "episodes per seed"]
    rows = [
        [str(number), each.cell.name, _LATER if n is None else f"{n:,}"]
        for number, (each, n) in enumerate(zip(planned.checked, counts, strict=True), 1)
    ]
    known = [n for n in counts if n is not None]
    total = f"{len(grid.seeds) * sum(known):,} episodes"
    if len(known) < len(counts):
        total = f"at least {total}" if known else f"whose episodes are {_LATER}"
    n = len(grid.cells) * len(grid.seeds)
    planned_notes = [*grid.notes, *notes((each.cell, each.config) for each in planned.checked)]
    return "\n".join(
        [
            table(header, rows, right=(0, 2)),
            "",
            f"{counted(len(grid.cells), 'cell')} x {counted(len(grid.seeds), 'seed')}: "
            f"{counted(n, 'run')}, {total}",
            f"into {grid.path}",
            *_described_controls(grid),
            *([] if planned.sweep is None else _described_sweep(planned.sweep.grid)),
            *(f"note: {note}" for note in planned_notes),
        ]
    )


def _described_controls(grid: Grid) -> Iterator[str]:
    for cell in grid.cells:
        if cell.control:
            yield f"{cell.name}: {', '.join(cell.overrides)}"
    if grid.branches:
        yield "every other cell begins where the demonstrations of the first one end"


def _described_sweep(swept: Grid) -> Iterator[str]:
    n = len(swept.cells) * len(swept.seeds)
    seeds = ", ".join(map(str, swept.seeds))
    yield f"before: {counted(n, 'run')} of the seeds {seeds} choose each cell's value of the sweep"


def make(planned: Planned) -> Grid:
    """Create the folder of a grid. Raises as `create`."""
    create(planned.grid, [each.config for each in planned.checked])
    if planned.sweep is not None:
        make(planned.sweep)
    return read(planned.grid.path)


def run_in_new_process(grid: Grid, *, jobs: int, concurrency: int | None) -> NoReturn:
    """Replace this process by one that runs the grid.

    Checking has built every part of every cell, possibly models; this frees their memory.
    """
    arguments = ["ablate", "--resume", str(grid.path), "--jobs", str(jobs)]
    if concurrency is not None:
        arguments += ["-n", str(concurrency)]
    os.execv(sys.executable, [sys.executable, "-P", "-m", "ale", *arguments])  # noqa: S606


def run_grid(grid: Grid, registry: Registry, *, jobs: int, concurrency: int | None) -> int:
    """Run what is missing, then write and print the results.

    Returns:
        The exit status: 0; 1 where runs failed; 3 where episodes broke; 130 or 143 where it was
        interrupted.

    Raises:
        StoreError: another process runs this grid, or it can't be written.
    """

    def report(text: str) -> None:
        click.echo(text, err=True)

    now = versions(registry)
    changed = sorted(
        name for name in {*now, *grid.versions} if now.get(name) != grid.versions.get(name)
    )
    if changed:
        report(f"versions changed since the grid was created: {', '.join(changed)}")
    locked = lock(grid.path)
    try:
        if grid.sweep:
            swept = read(grid.path / SWEEP)
            comparison, runner = _run_missing(swept, jobs, concurrency, report)
            if comparison.completed < len(comparison.runs):
                click.echo(ending(comparison, runner, resume=grid))
                return _status(comparison, runner)
            grid = choose(grid, comparison)
        comparison, runner = _run_missing(grid, jobs, concurrency, report)
    finally:
        os.close(locked)
    click.echo(ending(comparison, runner))
    return _status(comparison, runner)


def _run_missing(
    grid: Grid, jobs: int, concurrency: int | None, report: Callable[[str], None]
) -> tuple[Comparison, Runner]:
    """Run what is missing, and write the results."""
    n = len(grid.cells) * len(grid.seeds)
    report(f"{counted(n, 'run')} in {_shown(grid)}")
    for note in stored_notes(grid):
        report(f"note: {note}")
    runner = Runner(grid=grid, jobs=jobs, concurrency=concurrency, report=report)
    asyncio.run(runner.go())
    return conclude(grid), runner


def _status(comparison: Comparison, runner: Runner) -> int:
    if runner.ended_by is not None:
        return 128 + runner.ended_by
    if runner.failed or any(run.damage for run in comparison.runs):
        return 1
    return 3 if any(run.broken for run in comparison.runs) else 0


def ending(comparison: Comparison, runner: Runner, resume: Grid | None = None) -> str:
    """The tables, failures, paths, and the next command.

    Args:
        resume: what the next command resumes; by default the compared grid.
    """
    lines = []
    if comparison.completed:
        lines += [terminal(comparison), ""]
    for failed in runner.failed:
        lines.append(f"failed: {failed.slot.title} (status {failed.code}): {failed.reason}")
    for run in comparison.runs:
        if run.damage:
            lines.append(f"{run.state}, left out: {run.slot.title}: {run.damage}")
    n, done = len(comparison.runs), comparison.completed
    path = _shown(comparison.grid)
    word = "interrupted" if runner.ended_by is not None else "done" if done == n else "incomplete"
    broken = sum(run.broken for run in comparison.runs)
    lines += [f"{word}: {done} of {counted(n, 'run')} completed"]
    if broken:
        lines.append(f"  broken episodes: {broken}  (no reward)")
    lines += ["stored in", f"  {path}", f"  {path}/report.html"]
    if done < n:
        again = _shown(resume or comparison.grid)
        lines += ["next", f"  ale ablate --resume {shlex.quote(again)}"]
    return "\n".join(lines)


def _shown(grid: Grid) -> str:
    path = os.path.relpath(grid.path)
    return path if not path.startswith("..") else str(grid.path)
