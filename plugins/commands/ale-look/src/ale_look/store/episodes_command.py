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

_SHOWN = 20
"""Episodes that are printed without --limit."""

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
        help='Words that must all occur in one turn or note: ls "no such file" (in this order); '
        "/PATTERN/ is a regular expression.",
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
    from ale_look.store.noted import with_notes

    filters = Filters(of=of_runs(folder, store, tags=tags, where=where), **given)
    with opened(folder, store, update=update) as database, database.reading() as connection:
        report_unknown(connection, filters.of)
        yield connection, with_notes(connection, filters, lambda text: click.echo(text, err=True))


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


@runs.command("episodes")
@_filtered
@sort_option("reward", "broken episodes", "random")
@click.option("--seed", type=int, help="Seed of --sort random. Default: 0.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    help="Maximum number of episodes. Default: 20, and with --out all.",
)
@click.option(
    "--out",
    type=PATH,
    metavar="PATH",
    help="Write them: a .jsonl or .parquet file, or (no suffix) a folder with a Parquet file of "
    "each table.",
)
@json_option
def episodes(
    order: Any, seed: int | None, limit: int | None, out: Path | None, as_json: bool, **given: Any
) -> None:
    """Show the episodes of the runs in FOLDER that pass all filters, or write them; default: runs.

    Each line of JSON has the columns of the table `episodes`, with run and prompt. `ale show RUN
    EPISODE` shows an episode turn by turn. With --sort random, the same seed gives the same
    episodes as long as the runs are the same.

    A .jsonl file has whole episodes, as `ale data collect` writes them, which the other commands of
    `ale data` read. Parquet has the tables of the database, for DuckDB, pandas and others. A file
    that exists is replaced; a folder that exists is replaced only if it holds nothing but such
    tables.

    \b
    Examples:
      ale runs episodes --prompt rename --model qwen2.5-7b-instruct --max-reward 0.5 --after 7d
      ale runs episodes --error "exit code 127" --sort worst --json
      ale runs episodes --text '"no such file"' --tag baseline
      ale runs episodes --max-reward 0 --sort random --seed 7 --limit 10
      ale runs episodes --min-reward 1 --out successes.jsonl
      ale runs episodes --out tables
    """
    from ale_look.store.finding import find, sample

    if seed is not None and order != "random":
        raise click.UsageError("--seed is for --sort random")
    if out is not None and as_json:
        raise click.UsageError("--out writes, --json prints: give one of them")
    if given["broken"] and order in ("best", "worst"):
        raise click.UsageError("--broken episodes have no reward to sort by: use --sort newest")

    def found(connection: "Connection", filters: "Filters", most: int) -> list[dict[str, Any]]:
        if order == "random":
            return sample(connection, filters, most, seed or 0)
        return find(connection, filters, order, most)

    with _asked(**given) as (connection, filters):
        if out is not None:
            rows = None if limit is None else found(connection, filters, limit)
            _write(connection, filters, rows, out)
            return
        rows = found(connection, filters, (limit or _SHOWN) + 1)
    _print(rows[: limit or _SHOWN], as_json)
    if len(rows) > (limit or _SHOWN):
        click.echo(f"the first {limit or _SHOWN}; --limit shows more", err=True)


def _write(
    connection: "Connection", filters: "Filters", rows: list[dict[str, Any]] | None, out: Path
) -> None:
    """Write these episodes, or all that pass."""
    from ale.text import counted
    from ale_look.store.exporting import export
    from ale_look.store.finding import every, numbered

    ids = every(connection, filters) if rows is None else numbered(row["id"] for row in rows)
    click.echo(f"{counted(export(connection, ids, out), 'episode')} in {out}")
