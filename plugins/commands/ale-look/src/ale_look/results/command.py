"""``ale show results`` and ``ale data harbor-job``; their work is imported when they run."""

from pathlib import Path
from typing import cast

import click

from ale.commands import PATH, run_argument
from ale_look.inspect.commands import show

__all__ = ["data", "show"]

_split = click.option(
    "--split", type=click.Choice(["train", "evaluation"]), default="train", show_default=True
)


data = click.Group("data")


@show.command("results")
@run_argument
@click.option("--k", "ks", type=click.IntRange(1), multiple=True, help="k of pass@k; repeatable.")
@_split
@click.option("--step", type=click.IntRange(0), help="Training step. Default: all steps together.")
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    help="Temperature of an evaluation, 0 for greedy. Default: all together.",
)
@click.option("--against", type=PATH, metavar="RUN", help="Compare with another run, task by task.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def results(
    run: Path,
    ks: tuple[int, ...],
    split: str,
    step: int | None,
    temperature: float | None,
    against: Path | None,
    as_json: bool,
) -> None:
    """Show the results of the attempts at each task of RUN, with pass@k and its interval.

    \b
    Examples:
      ale show results runs/20260101-120000-3f2a-terminal
      ale show results runs/20260101-120000-3f2a-terminal --k 1 --k 5 --json
      ale show results runs/20260101-120000-3f2a-terminal --split evaluation --temperature 0
      ale show results latest --against runs/20260101-120000-3f2a-terminal
    """
    from ale.runs import RunReader
    from ale.types import Split
    from ale_figures.statistics import count_attempts
    from ale_look.results.view import as_text, to_json

    if temperature is not None and split != "evaluation":
        raise click.UsageError("--temperature chooses among evaluations: add --split evaluation")
    chosen = cast(Split, split), step, temperature
    counted = count_attempts(RunReader(run), *chosen)
    other = None if against is None else count_attempts(RunReader(against), *chosen)
    click.echo(to_json(counted, ks, other) if as_json else as_text(counted, ks, other))


@data.command("harbor-job")
@run_argument
@click.option(
    "--out",
    type=PATH,
    default=Path("jobs"),
    show_default=True,
    help="Parent folder of the job.",
)
@click.option("--name", help="Name of the job. Default: the run's id.")
@_split
def harbor_job(run: Path, out: Path, name: str | None, split: str) -> None:
    """Export RUN as a Harbor job, with a trajectory (ATIF) for each trial.

    \b
    Example:
      ale data harbor-job runs/20260101-120000-3f2a-terminal --out jobs
      harbor view jobs
    """
    from ale.types import Split
    from ale_look.results.job import write_job

    click.echo(f"written: {write_job(run, out, name, cast(Split, split))}")
