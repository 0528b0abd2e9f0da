"""``ale train prm``; its implementation is imported when it is called."""

from __future__ import annotations

from pathlib import Path

import click

from ale.commands import PATH, RUN

train = click.Group("train")


@train.command("prm")
@click.argument("runs", nargs=-1, required=True, type=RUN)
@click.option("--model", required=True, metavar="MODEL", help="Folder, or a name on the hub.")
@click.option(
    "--labels",
    required=True,
    metavar="values|SCORER",
    help="Values that `ale data values` measured, or the stored scores of a scorer.",
)
@click.option("--out", type=PATH, required=True, metavar="FOLDER", help="Folder to write.")
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.25,
    show_default=True,
    help="Share that is not learned from.",
)
@click.option(
    "--by",
    type=click.Choice(["trajectory", "task"]),
    default="trajectory",
    show_default=True,
    help="What is held out: whole trajectories, or whole tasks.",
)
@click.option("--shuffled", is_flag=True, help="Deal the labels at random: a control.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the split.")
def prm(
    runs: tuple[Path, ...],
    model: str,
    labels: str,
    out: Path,
    held_out: float,
    by: str,
    shuffled: bool,
    seed: int,
) -> None:
    """Train a process reward model on the steps of RUNS: a head on a frozen MODEL.

    What it says of the trajectories that were held out is printed, and stored with the head. The
    scorer `prm` reads FOLDER.

    \b
    Examples:
      ale train prm runs/20260101-120000-3f2a-frozen --labels values --model MODEL --out outputs/prm
      ale train prm RUN --labels judge --by task --model MODEL --out outputs/prm
    """
    from ale_prm.training import train_head

    for line in train_head(
        runs, model, labels, out, held_out=held_out, by=by, shuffled=shuffled, seed=seed
    ):
        click.echo(line)
