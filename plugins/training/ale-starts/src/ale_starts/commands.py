"""``ale show forks`` and ``ale data values``; their implementations are imported when called."""

from pathlib import Path

import click

from ale.commands import PATH, run_argument

show = click.Group("show")
data = click.Group("data")


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


@data.command("values")
@run_argument
@click.option(
    "--rollouts",
    type=click.IntRange(2),
    default=32,
    show_default=True,
    help="Rollouts from each state.",
)
@click.option(
    "--episodes",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Maximum number of episodes.",
)
@click.option(
    "--per-task",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Maximum number of episodes of one task, successes and failures in turn.",
)
@click.option("--step", type=click.IntRange(0), help="Take the episodes of this training step.")
@click.option(
    "--model",
    type=PATH,
    metavar="FOLDER",
    help="The policy, as `ale model` exports it. Default: the run's own, if it was not trained.",
)
@click.option("-n", "--concurrency", type=click.IntRange(1), help="Concurrent episodes.")
def values(
    run: Path,
    rollouts: int,
    episodes: int,
    per_task: int,
    step: int | None,
    model: Path | None,
    concurrency: int | None,
) -> None:
    """Measure the value of every state of episodes of RUN: the success rate of rollouts from it.

    Each episode is replayed up to each of its turns, and the policy continues from there. The
    rollouts are a run in RUN/value_rollouts, which `ale show forks` shows; their counts are in
    RUN/values.jsonl. The same command continues what was interrupted.

    \b
    Examples:
      ale data values runs/20260101-120000-3f2a-frozen --rollouts 32
      ale data values RUN --model outputs/model --step 49 --episodes 50
    """
    from ale.runs import RunReader
    from ale_starts.options import PrefixOptions
    from ale_starts.valuing import Valuation

    options = PrefixOptions(run=run, episodes=episodes, per_task=per_task, step=step)
    valuation = Valuation(
        run=RunReader(run),
        rollouts=rollouts,
        options=options,
        model=model,
        concurrency=concurrency,
        report=lambda text: click.echo(text, err=True),
    )
    click.echo(valuation.carry_out())
