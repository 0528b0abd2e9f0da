"""The command line of `ale runs`; the implementations are imported when they run."""

from pathlib import Path
from typing import Any

import click

from ale.commands import PATH, RUN
from ale_look.store.shared import (
    check_folder,
    folder_argument,
    json_option,
    of_runs,
    opened,
    report_problems,
    report_unknown,
    run_filters,
    sort_option,
    store_option,
    times,
    update_option,
)

_some_runs = click.argument("runs", nargs=-1, required=True, type=RUN)
_yes = click.option("--yes", is_flag=True, help="Do not ask.")


_RENAMED = {"export": "episodes --out PATH", "sample": "episodes --sort random"}
"""Commands that had names of their own, for who types one."""


class _Runs(click.Group):
    """The commands of runs, with what the former ones are now."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _RENAMED:
            ctx.fail(f"`ale runs {cmd_name}` is now `ale runs {_RENAMED[cmd_name]}`")
        return super().get_command(ctx, cmd_name)


@click.group("runs", cls=_Runs)
def runs() -> None:
    """List stored runs and search their episodes; tag, compare, archive, restore and delete runs.

    \b
    Examples:
      ale runs list
      ale runs list --where credit.type=grpo --after 7d --sort best
      ale runs tag runs/20260101-120000-3f2a-quickstart --add baseline
    """


@runs.command("list")
@folder_argument
@run_filters
@click.option(
    "--outcome",
    help="How the run ended: completed, drained, ...; none for a run without an outcome.",
)
@times("Created")
@sort_option("mean reward", "runs without graded episodes")
@click.option("--limit", type=click.IntRange(1), help="Show at most this many runs.")
@click.option("--archived", is_flag=True, help="List the archives in FOLDER instead.")
@json_option
@store_option
@update_option
def list_(
    folder: Path,
    order: Any,
    limit: int | None,
    archived: bool,
    as_json: bool,
    store: str | None,
    update: bool,
    **filters: Any,
) -> None:
    """List the runs in FOLDER, at any depth; default: runs.

    Success and reward are those of training episodes that began where their task begins.

    \b
    Examples:
      ale runs list
      ale runs list --where credit.type=grpo --tag baseline --sort best --limit 5
    """
    import json

    from ale_look.store.listing import list_runs
    from ale_look.store.tables import archives_table, runs_table, with_states

    if archived:
        if as_json or limit or order != "newest" or any(filters.values()):
            raise click.UsageError("--archived lists all archives in FOLDER: give no other option")
        check_folder(folder)
        click.echo(archives_table(folder))
        return
    with opened(folder, store, update=update) as database, database.reading() as connection:
        chosen = of_runs(folder, store, **filters)
        report_unknown(connection, chosen)
        rows = with_states(list_runs(connection, chosen, order, limit))
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
        return
    click.echo(runs_table(rows))


@runs.command("tag")
@_some_runs
@click.option("--add", multiple=True, metavar="TAG", help="Add a tag; repeatable.")
@click.option("--remove", multiple=True, metavar="TAG", help="Remove a tag; repeatable.")
def tag(runs: tuple[Path, ...], add: tuple[str, ...], remove: tuple[str, ...]) -> None:
    """Show the tags of RUNS, or change them. They are stored in each run, as tags.json.

    \b
    Examples:
      ale runs tag runs/20260101-120000-3f2a-quickstart --add baseline --add paper
      ale runs tag runs/20260101-120000-3f2a-quickstart --remove paper
    """
    from ale.runs import RunReader
    from ale_look.store.tagging import change_tags, check_removed, read_tags

    for run in runs:
        RunReader(run)
    check_removed(runs, remove)
    for run in runs:
        now = change_tags(run, add, remove) if add or remove else read_tags(run)
        click.echo(f"{run.name}: {', '.join(now) or 'no tags'}")


@runs.command("compare")
@_some_runs
def compare(runs: tuple[Path, ...]) -> None:
    """Compare RUNS: their results, and the settings in which their configs differ.

    \b
    Example:
      ale runs compare runs/20260101-120000-3f2a-quickstart runs/20260102-120000-7bd1-quickstart
    """
    from ale_look.store.comparing import comparison

    click.echo(comparison(runs))


@runs.command("delete")
@_some_runs
@_yes
@store_option
def delete(runs: tuple[Path, ...], yes: bool, store: str | None) -> None:
    """Delete the directories of RUNS, with everything in them. A run that is running is refused.

    \b
    Example:
      ale runs delete runs/20260101-120000-3f2a-quickstart
    """
    from ale.runs import hold_notes
    from ale_look.store.removing import check, held, remove

    check(runs)
    _name_states(runs)
    if not (yes or _agreed(runs, "Delete")):
        return
    for run in dict.fromkeys(runs):
        with held(run), hold_notes(run):
            remove(run)
        _forget(run, store)
        click.echo(f"deleted {run}")


@runs.command("archive")
@_some_runs
@click.option(
    "--to",
    type=PATH,
    metavar="FOLDER",
    help="Where to write the archives. Default: beside each run.",
)
@click.option("--keep", is_flag=True, help="Also keep the run directories.")
@_yes
@store_option
def archive(
    runs: tuple[Path, ...], to: Path | None, keep: bool, yes: bool, store: str | None
) -> None:
    """Write each of RUNS as NAME.tar.gz, compare the archive with the run, and remove the run.

    The run directory is removed only if every file in the archive is equal to the original. A run
    that is running is refused.

    \b
    Examples:
      ale runs archive runs/20260101-120000-3f2a-quickstart
      ale runs archive runs/2025* --to /backup/runs --yes
    """
    from ale.text import size
    from ale_look.store.archiving import archive as archived
    from ale_look.store.removing import check

    check(runs)
    if not keep:
        _name_states(runs)
    if not (yes or keep or _agreed(runs, "Archive, and then remove,")):
        return
    for run in dict.fromkeys(runs):
        target = archived(run, to or run.absolute().parent, keep=keep)
        if not keep:
            _forget(run, store)
        click.echo(f"{target}  {size(target.stat().st_size)}")


@runs.command("restore")
@click.argument("archives", nargs=-1, required=True, type=PATH)
@click.option(
    "--to",
    type=PATH,
    metavar="FOLDER",
    help="Where to create the runs. Default: beside each archive.",
)
def restore(archives: tuple[Path, ...], to: Path | None) -> None:
    """Unpack ARCHIVES into run directories; the archives are kept.

    \b
    Example:
      ale runs restore runs/20260101-120000-3f2a-quickstart.tar.gz
    """
    from ale_look.store.archiving import restore as restored

    for path in archives:
        click.echo(f"{restored(path, to or path.absolute().parent)}")


@runs.command("index")
@folder_argument
@click.option("--rebuild", is_flag=True, help="Read these runs again from the beginning.")
@store_option
def index(folder: Path, rebuild: bool, store: str | None) -> None:
    """Bring the database up to date with the runs in FOLDER; default: runs.

    `ale runs list` and `ale runs` do this by themselves.

    \b
    Examples:
      ale runs index
      ale runs index --rebuild
    """
    from ale.text import counted
    from ale_look.store.indexing import Indexer

    with opened(folder, store, update=False) as database:
        if rebuild:
            Indexer(database).outdate(folder)
        done = report_problems(database, folder)
        read = f"{counted(done.episodes, 'episode')} read"
        click.echo(f"{counted(done.found, 'run')}, {done.runs} with something new; {read}")
        if done.removed:
            click.echo(f"{counted(done.removed, 'run')} of the database no longer there")


def _name_states(runs: tuple[Path, ...]) -> None:
    """Say which runs keep states: without the run's folder, the next prune removes them."""
    from ale.text import counted
    from ale_look.store.removing import kept_states

    for run in runs:
        if n := kept_states(run):
            click.echo(
                f"{run} keeps {counted(n, 'state')} for `ale regrade`; without the run, "
                "`ale sandbox prune` removes them",
                err=True,
            )


def _agreed(runs: tuple[Path, ...], what: str) -> bool:
    from ale.runs import RunReader
    from ale.text import size
    from ale_look.store.removing import size_of

    for run in runs:
        RunReader(run)
        click.echo(f"{run}  {size(size_of(run))}")
    return click.confirm(f"{what} {'it' if len(runs) == 1 else f'these {len(runs)}'}?")


def _forget(run: Path, store: str | None) -> None:
    """Remove a run from the database, where there is one."""
    from ale_look.store.database import default_file, open_database
    from ale_look.store.indexing import Indexer

    beside = default_file(run.absolute().parent)
    if store is None and not beside.exists():
        return
    database = open_database(store or str(beside))
    try:
        Indexer(database).forget([run])
    finally:
        database.close()
