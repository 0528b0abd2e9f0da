"""The command line of `ale show`, `ale show credit` and `ale report`.

`ale --help` imports this module, so it imports only click and `ale.commands`; the rest is imported
when it runs.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ale.commands import COMPONENT, PATH, run_argument

if TYPE_CHECKING:
    from ale.runs import Registry, RunReader


class _Show(click.Group):
    """A group of views, to which other packages add theirs; `run` is the one that needs no name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; options that are not the group's are those of `run`."""
        option = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["run", *args] if option else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; what names no view is a RUN, if it is not just a misspelt view."""
        if args[0] not in self.commands and not Path(args[0]).exists():
            from ale.strict import nearest

            if (hint := nearest(args[0], self.commands)) is not None:
                raise click.UsageError(f"no view or run '{args[0]}'; {hint}", ctx)
        return super().resolve_command(ctx, args if args[0] in self.commands else ["run", *args])


@click.group("show", cls=_Show, subcommand_metavar="[VIEW] [RUN] ...")
def show() -> None:
    """Show a stored RUN, or one EPISODE of it turn by turn; other views have names.

    Without a RUN, it is the newest in ./runs.

    \b
    Examples:
      ale show
      ale show runs/20260101-120000-3f2a-quickstart 0-basics-ls-0
      ale show credit runs/20260101-120000-3f2a-quickstart --scheme ipa --scheme grpo
    """


@show.command("run")
@run_argument
@click.argument("episode", required=False)
@click.option("--full", is_flag=True, help="Show prompts and outputs in full, and tracebacks.")
@click.option("--all", "every", is_flag=True, help="List every step and task, not only 60.")
def run_or_episode(run: Path, episode: str | None, full: bool, every: bool) -> None:
    """Show a stored RUN, or one EPISODE of it turn by turn.

    A run that trains is shown by step and evaluation, another one by task.

    EPISODE is an id, the beginning of one, or a task's id.

    \b
    Examples:
      ale show run runs/20260101-120000-3f2a-quickstart --all
      ale show runs/20260101-120000-3f2a-quickstart 0-basics-ls-0
    """
    from ale.runs import RunReader
    from ale_look.inspect.overview import overview

    if every and episode is not None:
        raise click.UsageError("--all lists the tasks of a run: give no EPISODE")
    damage: dict[str, None] = {}
    reader = RunReader(run, lambda error: damage.setdefault(str(error)))
    try:
        if episode is None:
            click.echo(overview(reader, every_task=every))
        else:
            _show_episode(reader, episode, full=full)
    finally:
        for each in damage:
            click.echo(f"\nleft out: {each}", err=True)
    if damage:
        click.get_current_context().exit(1)


def _show_episode(reader: "RunReader", wanted: str, *, full: bool) -> None:
    from ale_look.inspect.overview import find_episode, regraded_line, which_of
    from ale_look.inspect.transcript import transcript

    found, others = find_episode(reader, wanted)
    if others:
        click.echo(which_of(found, others, wanted, reader.path))
    credited = next((row for row in reader.credits() if row.episode_id == found.id), None)
    newer = regraded_line(reader, found.id)
    scored = reader.scores_of(found)
    notes = reader.notes
    if notes.problem is not None:
        click.echo(notes.problem, err=True)
    said = notes.of(found)
    shown = transcript(found, credited, full=full, regraded=newer, scored=scored, notes=said)
    click.echo(shown)


@show.command("credit")
@run_argument
@click.option(
    "--scheme",
    "schemes",
    multiple=True,
    metavar=COMPONENT,
    help="A credit scheme; repeatable to compare: --scheme ipa:gamma=0.9 --scheme grpo. Default: "
    "the run's own.",
)
@click.option("--chunker", metavar=COMPONENT, help="Chunker. Default: the run's own.")
@click.option("--episode", help="Show this episode only: an id, its beginning, or a task's id.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Maximum number of episodes to show.",
)
@click.option(
    "--against",
    type=click.Choice(["values"]),
    help="Score schemes against the measured worth of chunks: see `ale data values`. Without "
    "--scheme, every installed one.",
)
@click.pass_obj
def credit(
    registry: "Registry",
    run: Path,
    schemes: tuple[str, ...],
    chunker: str | None,
    episode: str | None,
    limit: int,
    against: str | None,
) -> None:
    """Compare credit schemes on the same stored episodes of RUN, chunk by chunk.

    Nothing is sampled or written: chunks and credit are recomputed from the stored episodes.

    \b
    Examples:
      ale show credit runs/20260101-120000-3f2a-quickstart --scheme ipa --scheme grpo
      ale show credit RUN --scheme ipa:gamma=0.5 --scheme ipa:gamma=1 --episode basics-ls
      ale show credit RUN --against values
    """
    from ale.runs import RunReader
    from ale_look.inspect.compare import compare_all, compare_episode
    from ale_look.inspect.recrediting import creditings

    reader = RunReader(run)
    if against is not None:
        from ale_look.inspect.against import against_values

        if episode is not None:
            raise click.UsageError("--against is over all episodes with values: give no --episode")
        for part in against_values(reader, schemes, registry, chunker):
            click.echo(part)
        return
    compared = creditings(reader, schemes, registry, chunker=chunker)
    if episode is not None:
        click.echo(compare_episode(reader, compared, episode))
        return
    for part in compare_all(reader, compared, limit):
        click.echo(part)


@click.command("report")
@run_argument
@click.option(
    "--out",
    type=PATH,
    metavar="FILE",
    help="File to write. Default: report.html in the run's directory.",
)
@click.option(
    "--episodes",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="Include at most this many episodes, turn by turn.",
)
@click.option(
    "--megabytes",
    type=click.FloatRange(0),
    default=8.0,
    show_default=True,
    help="Total size limit of these episodes (10^6 bytes).",
)
@click.pass_obj
def report(
    registry: "Registry", run: Path, out: Path | None, episodes: int, megabytes: float
) -> None:
    """Write an HTML report of RUN: curves, tasks, and episodes turn by turn.

    The report is a single file that needs no network. RUN may still be running.

    \b
    Example:
      ale report runs/20260101-120000-3f2a-quickstart
    """
    from ale.errors import StoreError
    from ale.runs import RunReader
    from ale.text import size
    from ale_look.view.single import NAME, write_report

    target = out or run / NAME
    try:
        written = write_report(
            RunReader(run), target, episodes=episodes, megabytes=megabytes, registry=registry
        )
    except OSError as error:
        raise StoreError(f"{target} can't be written: {error.strerror}") from error
    click.echo(f"{target}  {size(written)}")
