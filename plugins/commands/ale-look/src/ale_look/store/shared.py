"""Parameters that both commands have, and the database that they name.

`ale --help` imports this module, so it imports only click and `ale.commands`.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ale.commands import RUN

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ale_look.store.database import Database
    from ale_look.store.indexing import Updated
    from ale_look.store.listing import RunFilters

F = TypeVar("F", bound=Callable[..., Any])
RUNS = Path("runs")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A time: ``2026-11-23``, ``2026-11-23T09:30``, or ``3d`` for three days ago."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Seconds since the epoch."""
        if isinstance(value, float):
            return value
        number, unit = value[:-1], value[-1:]
        try:
            if unit in _UNITS and number.isdecimal():
                return (datetime.now(UTC) - timedelta(**{_UNITS[unit]: int(number)})).timestamp()
            time = datetime.fromisoformat(value)
        except (ValueError, OverflowError):
            message = f"'{value}' is no time; write 2026-11-23, 2026-11-23T09:30 (UTC), or 3d"
            self.fail(message, param, ctx)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


class Setting(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A setting of a config: ``credit.type=grpo``."""

    name = "setting"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, str]:
        """Key and value."""
        if isinstance(value, tuple):
            return value
        key, equals, wanted = value.partition("=")
        if not equals:
            self.fail(f"expected KEY=VALUE, found '{value}'", param, ctx)
        return key, wanted


folder_argument = click.argument("folder", type=RUN, default=RUNS)

store_option = click.option(
    "--store",
    envvar="ALE_STORE",
    show_envvar=True,
    metavar="FILE|URL",
    help="Database: an SQLite file, or postgresql://... Default: index.sqlite in the folder, where "
    "the observer 'store' has made one; else a file in the user's cache.",
)

update_option = click.option(
    "--update/--no-update",
    default=True,
    help="Read what is new in the run directories first. [default: update]",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON for each result."
)


def run_filters(command: F) -> F:
    """The options that choose runs."""
    for option in (
        click.option(
            "--where",
            multiple=True,
            type=Setting(),
            metavar="KEY=VALUE",
            help="A setting of the run's config, such as credit.type=grpo; repeatable.",
        ),
        click.option("--tag", "tags", multiple=True, help="A tag of the run; repeatable."),
    ):
        command = option(command)
    return command


def sort_option(by: str, without: str, *more: str) -> Callable[[F], F]:
    """The option ``--sort``; `without` says what has no `by`, and `more` are further orders."""
    return click.option(
        "--sort",
        "order",
        type=click.Choice(["newest", "oldest", "best", "worst", *more]),
        default="newest",
        show_default=True,
        help=f"Sort by time or by {by}; best and worst leave out {without}.",
    )


def times(of: str) -> Callable[[F], F]:
    """The options ``--after`` and ``--before``."""

    def decorate(command: F) -> F:
        after = f"{of} at or after: 2026-11-23, 2026-11-23T09:30 (UTC), or 3d for three days ago."
        command = click.option("--before", type=Moment(), help=f"{of} before.")(command)
        return click.option("--after", type=Moment(), help=after)(command)

    return decorate


def check_folder(folder: Path) -> None:
    """Raise `InputError` if there is no such folder."""
    from ale.errors import InputError
    from ale.strict import nearest_file

    if not folder.is_dir():
        hint = nearest_file(folder) or "name the folder that has the runs"
        if folder == RUNS:
            hint = "ale run CONFIG makes it; or name the folder that has the runs"
        raise InputError.of("no such folder", file=str(folder), hint=hint)


@contextmanager
def opened(folder: Path, store: str | None, *, update: bool) -> Iterator["Database"]:
    """The database of a folder of runs, up to date unless `update` is false.

    Raises:
        InputError: there is no such folder, and no database was named.
    """
    from ale_look.store.database import open_database

    if store is None or folder != RUNS:
        check_folder(folder)
    # A run directory holds only what the run has written.
    beside = folder.resolve().parent if (folder / "manifest.json").is_file() else folder
    with ExitStack() as stack:
        database = open_database(store or _own_file(beside, stack))
        stack.callback(database.close)
        if update and folder.is_dir():
            report_problems(database, folder)
        yield database


def _own_file(folder: Path, stack: ExitStack) -> str:
    """The default database of a folder, or a temporary one where the cache can't be written."""
    from ale_look.store.database import FILE, default_file

    found = default_file(folder)
    try:
        found.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return str(Path(stack.enter_context(TemporaryDirectory(prefix="ale-store-"))) / FILE)
    return str(found)


def report_problems(database: "Database", folder: Path) -> "Updated":
    """Update the database, and name what could not be read."""
    from ale_look.store.indexing import Indexer

    done = Indexer(database).update(folder)
    for problem in done.problems:
        click.echo(f"left out:\n{problem}", err=True)
    return done


def report_unknown(connection: "Connection", filters: "RunFilters") -> None:
    """Name settings to filter by that no run has: a misspelt one would only find nothing."""
    from ale_look.store.listing import unknown_settings

    for message in unknown_settings(connection, filters):
        click.echo(message, err=True)


def of_runs(folder: Path, store: str | None, **given: Any) -> "RunFilters":
    """The filters of runs; those of other folders in the same database do not pass."""
    from ale_look.store.listing import RunFilters

    everywhere = store is not None and folder == RUNS and not folder.is_dir()
    return RunFilters(paths=[] if everywhere else [str(folder)], **given)


def shown_time(seconds: float | None) -> str:
    """``2026-11-23 09:30``, UTC."""
    return "-" if not seconds else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def shown_reward(reward: float | None) -> str:
    """Two digits, or a dash for none."""
    from ale.text import number

    return "-" if reward is None else number(reward, 2)
