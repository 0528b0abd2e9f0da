"""The command line of `ale monitor`; the implementation is imported when it runs."""

from pathlib import Path

import click

from ale.commands import RUN


@click.command("monitor")
@click.argument("runs", type=RUN, nargs=-1, required=True, metavar="RUN...")
@click.option("--proxy", metavar="SCORE", help="The score that may be satisfied without the work.")
@click.option("--judge", metavar="SCORE", help="The score that --proxy is compared with.")
def monitor(runs: tuple[Path, ...], proxy: str | None, judge: str | None) -> None:
    """Look for collusion, for a proxy that parts from its judge, and for gaps of the audit.

    Scores are correlated after the mean of each task and step is subtracted, graders within a RUN
    and agents between RUNs. A SCORE is the name of a criterion, NAME:2 for the second of that name,
    or reward. What is found is a reason to look, not a proof: graders of the same work agree when
    both are right.

    \b
    Examples:
      ale monitor latest
      ale monitor runs/20260101-120000-3f2a-a runs/20260101-130000-9c1d-b
      ale monitor latest --proxy command_exit_code:1 --judge trace
    """
    from ale_alignment.monitoring import monitor as monitored

    if (proxy is None) != (judge is None):
        raise click.UsageError("give both --proxy and --judge, or neither")
    for line in monitored(runs, proxy, judge):
        click.echo(line)
