"""The command as click sees it; what it does is imported when it is done.

`ale --help` imports this module, so it must cost no more than click.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ale.runs import Registry


@click.command("ablate")
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "--vary",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="What to compare: --vary credit.type=ipa,grpo. Given again, every combination is run.",
)
@click.option(
    "--cell",
    "cells",
    multiple=True,
    metavar="KEY=VALUE; ...",
    help="One more combination, written out.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Runs of each combination, of run.seed 0, 1, ...",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Lay a value over the config of every run. May be given again.",
)
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Runs side by side."
)
@click.option("-n", "--concurrency", type=click.IntRange(1), help="Episodes of one run at once.")
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Go on with a grid: exactly what is missing is done.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, say what would be run, and end.")
@click.pass_context
def ablate(
    ctx: click.Context,
    config: Path | None,
    vary: tuple[str, ...],
    cells: tuple[str, ...],
    seeds: int,
    overrides: tuple[str, ...],
    jobs: int,
    concurrency: int | None,
    resume: Path | None,
    dry_run: bool,
) -> None:
    """Run CONFIG once for every combination of values and every seed, and compare.

    Each run is a run of its own, in the grid's folder. The first value of each --vary makes the
    first cell, to which the others are compared.

    The first Ctrl-C finishes the episodes that are running, the second cancels them; --resume goes
    on from there. Without runs that are missing, --resume writes the tables and the page again.

    \b
    Examples:
      ale ablate configs/quickstart.yaml --vary credit.type=ipa,grpo --seeds 5
      ale ablate my.yaml --vary credit.type=ipa,grpo --vary credit.gamma=0.9,1 --dry-run
      ale ablate my.yaml --cell "credit.type=ipa" --cell "credit.type=grpo; run.rollouts=8"
      ale ablate --resume runs/20260101-120000-ablate-my
    """
    from ale_ablate.grid import read
    from ale_ablate.session import begin, describe, go, plan, start_afresh

    if (config is None) == (resume is None):
        raise click.UsageError("give either a CONFIG or --resume DIR")
    registry: Registry = ctx.obj
    if resume is not None:
        if vary or cells or overrides or dry_run or _given(ctx, "seeds"):
            said = "--resume goes by the grid's own config: only --jobs and -n can be changed"
            raise click.UsageError(said)
        grid = read(resume)
    else:
        assert config is not None
        planned = plan(config, vary, cells, seeds, overrides, registry)
        if dry_run:
            click.echo(describe(planned))
            return
        start_afresh(begin(planned), jobs=jobs, concurrency=concurrency)
    ctx.exit(go(grid, registry, jobs=jobs, concurrency=concurrency))


def _given(ctx: click.Context, option: str) -> bool:
    source = ctx.get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE
