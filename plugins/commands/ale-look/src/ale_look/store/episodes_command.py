"""The commands of `ale runs` for episodes; their work is imported when they run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ale.commands import PATH
from ale_look.store.runs_command import runs
from ale_look.store.shared import (
    folder_argument,
    json_option,
    of_runs,
    opened,
    report_unknown,
    run_filters,
    sort_option,
    store_option,
    times,
    update_option,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ale_look.store.finding import Filters

__all__ = ["runs"]

F = TypeVar("F", bound=Callable[..., Any])

_FILTERS: tuple[Callable[[Any], Any], ...] = (
    click.option("--prompt", metavar="TEXT", help="Part of the task's prompt, in any case."),
    click.option("--task", metavar="ID", help="Id of the task."),
    click.option("--model", help="Name of the model, as it named itself or in the config."),
    click.option(
        "--worker", metavar="NAME", help="The worker that ran the episode, in a run with workers."
    ),
    click.option("--min-reward", type=float, help="A reward of at least this."),
    click.option("--max-reward", type=float, help="A reward of at most this."),
    click.option(
        "--broken/--graded", default=None, help="Only broken episodes, or only graded ones."
    ),
    times("Started"),
    click.option(
        "--split",
        type=click.Choice(["train", "evaluation"]),
        help="Split of the episodes. Default: both.",
    ),
    click.option("--step", type=click.IntRange(0), help="Training step."),
    click.option(
        "--stop", metavar="REASON", help="Why the agent stopped, such as finished or max_turns."
    ),
    click.option("--tool", metavar="NAME", help="A tool that was called."),
    click.option(
        "--error", metavar="TEXT", help="Part of the error of the episode or of a tool call."
    ),
    click.option("--failed", metavar="CRITERION", help="Only episodes that failed this criterion."),
    click.option(
        "--text",
        metavar="WORDS",
        help='Words that must all occur in one turn: ls "no such file" (in this order).',
    ),
    run_filters,
)


def _filtered(command: F) -> F:
    """A command with the folder, all filters and the options of the database."""
    for decorate in reversed((folder_argument, *_FILTERS, store_option, update_option)):
        command = decorate(command)
    return command


@contextmanager
def _asked(
    folder: Path, store: str | None, update: bool, tags: Any, where: Any, **given: Any
) -> Iterator[tuple["Connection", "Filters"]]:
    """A connection, and the filters of the command line."""
    from ale_look.store.finding import Filters

    filters = Filters(of=of_runs(folder, store, tags=tags, where=where), **given)
    with opened(folder, store, update=update) as database, database.reading() as connection:
        report_unknown(connection, filters.of)
        yield connection, filters


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    import json

    from ale_look.store.finding import columns_of
    from ale_look.store.tables import episodes_table

    if not as_json:
        click.echo(episodes_table(rows))
        return
    for row in rows:
        shown = {**columns_of(row), "details": json.loads(row["details"])}
        click.echo(json.dumps(shown, ensure_ascii=False))


_limit = click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Maximum number of episodes.",
)


@runs.command("episodes")
@_filtered
@sort_option("reward", "broken episodes")
@_limit
@json_option
def query(order: Any, limit: int, as_json: bool, **given: Any) -> None:
    """Show the episodes of the runs in FOLDER that pass all filters; default: runs.

    Each line of JSON has the columns of the table `episodes`, with run and prompt. `ale show RUN
    EPISODE` shows an episode turn by turn.

    \b
    Examples:
      ale runs episodes --prompt rename --model qwen2.5-7b-instruct --max-reward 0.5 --after 7d
      ale runs episodes --error "exit code 127" --sort worst --json
      ale runs episodes --text '"no such file"' --tag baseline
    """
    from ale_look.store.finding import find

    if given["broken"] and order in ("best", "worst"):
        raise click.UsageError("--broken episodes have no reward to sort by: use --sort newest")
    with _asked(**given) as (connection, filters):
        rows = find(connection, filters, order, limit + 1)
    _print(rows[:limit], as_json)
    if len(rows) > limit:
        click.echo(f"the first {limit}; --limit shows more", err=True)


@runs.command("sample")
@_filtered
@_limit
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the draw.")
@json_option
def sample(limit: int, seed: int, as_json: bool, **given: Any) -> None:
    """Show a random sample of the episodes that pass all filters.

    The same seed gives the same episodes as long as the runs are the same.

    \b
    Example:
      ale runs sample --max-reward 0 --limit 10 --seed 7
    """
    from ale_look.store.finding import sample as sampled

    with _asked(**given) as (connection, filters):
        rows = sampled(connection, filters, limit, seed)
    _print(rows, as_json)


@runs.command("export")
@_filtered
@click.option(
    "--out",
    type=PATH,
    required=True,
    metavar="PATH",
    help="A .jsonl or .parquet file, or (no suffix) a folder with a Parquet file of each table.",
)
@click.option("--limit", type=click.IntRange(1), help="Export at most this many, chosen by --seed.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of the choice for --limit."
)
def export(out: Path, limit: int | None, seed: int, **given: Any) -> None:
    """Write the episodes that pass all filters.

    .jsonl has whole episodes, as `ale data collect` writes them, which the other commands of `ale
    data` read. Parquet has the tables of the database, for DuckDB, pandas and others. A file that
    exists is replaced; a folder that exists is replaced only if it holds nothing but such tables.

    \b
    Examples:
      ale runs export --min-reward 1 --out successes.jsonl
      ale runs export --out tables
    """
    from ale.text import counted
    from ale_look.store.exporting import export as exported
    from ale_look.store.finding import every, numbered, sample

    with _asked(**given) as (connection, filters):
        ids = every(connection, filters)
        if limit is not None:
            ids = numbered(row["id"] for row in sample(connection, filters, limit, seed))
        n = exported(connection, ids, out)
    click.echo(f"{counted(n, 'episode')} in {out}")
