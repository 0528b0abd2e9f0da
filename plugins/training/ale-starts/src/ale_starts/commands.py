"""The command as click sees it; what it does is imported when it is done."""

from pathlib import Path

import click


@click.command("forks")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--task", help="Show this task only.")
@click.option(
    "--since",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="First training step that counts.",
)
@click.option(
    "--level",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Of the test that marks a fork as crucial.",
)
def forks(run: Path, task: str | None, since: int, level: float) -> None:
    """Show success before and after each turn of the experts of RUN, crucial forks marked.

    \b
    Examples:
      ale forks runs/20260101-120000-3f2a-rollback
      ale forks RUN --task rename-files --since 20
    """
    from ale.runs import RunReader
    from ale_forks import curves
    from ale_starts.showing import known, shown

    found = curves(RunReader(run).episodes, since=since, level=level)
    chosen = None if task is None else known(found, task)
    click.echo(shown(found, level=level, task_id=chosen))
