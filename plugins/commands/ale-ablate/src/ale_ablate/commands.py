"""The command line of `ale ablate`; the implementation is imported when it runs.

`ale --help` imports this module, so it imports only click and `ale.commands`.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ale.commands import PATH, Starting, overrides_option

if TYPE_CHECKING:
    from ale.runs import Registry


@click.command("ablate", cls=Starting)
@click.argument("config", type=PATH, required=False)
@click.option(
    "--vary",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="Values to compare: --vary credit.type=ipa,grpo. Repeatable: runs every combination.",
)
@click.option(
    "--cell",
    "cells",
    multiple=True,
    metavar="KEY=VALUE; ...",
    help="An explicit combination; repeatable.",
)
@click.option(
    "--controls",
    is_flag=True,
    help="Add the controls of a claim of learning: reward-blind, imitation, frozen and cooler.",
)
@click.option(
    "--sweep",
    metavar="KEY=VALUE,...",
    help="Values to tune first: each combination gets the one with the highest success in "
    "separate runs, whose seeds are not those of the compared runs.",
)
@click.option(
    "--sweep-seeds",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Runs of each value of --sweep.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Runs of each combination, with run.seed 0, 1, ...",
)
@overrides_option
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Concurrent runs."
)
@click.option("-n", "--concurrency", type=click.IntRange(1), help="Concurrent episodes of one run.")
@click.option(
    "--resume",
    type=PATH,
    metavar="DIR",
    help="Resume a grid: run only what is missing.",
)
@click.option("--dry-run", is_flag=True, help="Check everything and print the plan.")
@click.pass_context
def ablate(
    ctx: click.Context,
    config: Path | None,
    vary: tuple[str, ...],
    cells: tuple[str, ...],
    controls: bool,
    sweep: str | None,
    sweep_seeds: int,
    seeds: int,
    overrides: tuple[str, ...],
    jobs: int,
    concurrency: int | None,
    resume: Path | None,
    dry_run: bool,
) -> None:
    """Run CONFIG once for every combination of values and every seed, and compare.

    Each run has its own directory in the grid's folder. All cells are compared with the first,
    which has the first value of each --vary. If a varied type lacks a varied option, that option
    is left out of its cells.

    The first Ctrl-C finishes the running episodes, the second cancels them; --resume continues from
    there. If nothing is missing, --resume rewrites the tables and the page.

    \b
    Examples:
      ale ablate configs/quickstart.yaml --vary credit.type=ipa,grpo --seeds 5
      ale ablate my.yaml --vary credit.type=ipa,grpo --vary credit.gamma=0.9,1 --dry-run
      ale ablate my.yaml --cell "credit.type=ipa" --cell "credit.type=grpo; run.rollouts=8"
      ale ablate configs/quickstart.yaml --controls --seeds 10
      ale ablate configs/study/learn.yaml --sweep trainer.lr=1e-4,3e-4,1e-3
      ale ablate --resume runs/20260101-120000-ablate-my
    """
    from ale_ablate.grid import read
    from ale_ablate.session import describe, make, plan, run_grid, run_in_new_process

    if (config is None) == (resume is None):
        raise click.UsageError("give either a CONFIG or --resume DIR")
    registry: Registry = ctx.obj
    if resume is not None:
        given = ("seeds", "sweep", "sweep_seeds", "controls")
        if vary or cells or overrides or dry_run or any(_given(ctx, each) for each in given):
            message = "--resume uses the grid's saved config: only --jobs and -n can be changed"
            raise click.UsageError(message)
        grid = read(resume)
    else:
        assert config is not None
        if controls and sweep is not None:
            raise click.UsageError("sweep first, then give the chosen value with --set")
        planned = plan(
            config,
            vary,
            cells,
            seeds,
            overrides,
            registry,
            controls=controls,
            sweep=sweep,
            sweep_seeds=sweep_seeds,
        )
        if dry_run:
            click.echo(describe(planned))
            return
        run_in_new_process(make(planned), jobs=jobs, concurrency=concurrency)
    ctx.exit(run_grid(grid, registry, jobs=jobs, concurrency=concurrency))


def _given(ctx: click.Context, option: str) -> bool:
    source = ctx.get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE
