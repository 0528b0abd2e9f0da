"""The command ``ale show forks``; its implementation is imported when it is called."""

from pathlib import Path

import click

from ale.commands import run_argument

show = click.Group("show")


@show.command("forks")
@run_argument
@click.option("--task", help="Show this task only.")
@click.option(
    "--since",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="First training step to count.",
)
@click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Significance level of the test for crucial forks.",
)
def forks(run: Path, task: str | None, since: int, level: float) -> None:
    """Show success before and after each turn of the experts of RUN, with crucial forks marked.

    \b
    Examples:
      ale show forks runs/20260101-120000-3f2a-rollback
      ale show forks RUN --task rename-files --since 20
    """
    from ale.runs import RunReader
    from ale_figures.forks import curves
    from ale_starts.forks_table import check_task, forks_table

    found = curves(RunReader(run).episodes, since=since, level=level)
    if task is not None:
        check_task(found, task)
    click.echo(forks_table(found, level=level, task_id=task))
