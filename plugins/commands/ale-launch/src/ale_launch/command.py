"""``ale launch`` as click sees it; its work is imported when it runs."""

from typing import Any

import click

from ale.commands import PATH, Starting, overrides_option


@click.command("launch", cls=Starting)
@click.argument("config", type=PATH)
@click.option(
    "--on",
    metavar="NAME",
    help="Launcher (launch.type): local, torchrun, or one of another package; default: local.",
)
@click.option(
    "--nodes", type=click.IntRange(1), help="Machines for the trainer's processes (launch.nodes)."
)
@overrides_option
@click.option("--format", metavar="NAME", help="Format of CONFIG; default: from its keys.")
@click.option(
    "--directory",
    type=PATH,
    metavar="DIR",
    help="Run directory; one that holds a run is resumed. Default: a new one.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be started or submitted and exit.")
@click.pass_context
def launch(ctx: click.Context, /, dry_run: bool, **given: Any) -> None:
    """Start the run of CONFIG with its servers and workers.

    The section `launch` of CONFIG says where they run. The output of each process is stored in
    logs/ of the run directory; the output of the run is shown too. The first Ctrl-C ends the run as
    in `ale run`: running episodes are finished; the second cancels them. All other processes end
    with the run.

    \b
    Examples:
      ale launch train.yaml
      ale launch train.yaml --on torchrun
      ale launch train.yaml --on slurm --nodes 4 --dry-run
    """
    from ale_launch.launching import to_the_end
    from ale_launch.planning import Asked, prepare

    name, launcher, made = prepare(Asked(**given), ctx.obj)
    plan = launcher.plan(made)
    if dry_run:
        click.echo(plan)
        return
    click.echo(f"{name}: {made.directory}")
    ctx.exit(to_the_end(launcher, made, say=lambda text: click.echo(f"launch: {text}", err=True)))
