"""Options and helpers that several commands use."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ale._registry import Registry

F = TypeVar("F", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)
COMPONENT = "NAME[:OPTION=VALUE,...]"
"""Metavar of an option that names a component, as `ale.runs.parse_choice` reads it."""
LATEST = "latest"
CONFIG = Path("ale.yaml")
"""The config that ``ale init`` writes, and that ``ale run`` takes if none is named."""


class RunPath(click.Path):
    """The directory of a run; ``latest`` is the newest one in ./runs, or in a folder there.

    Those of a validation are none of them: each is a part of what the user has started.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """As click does, after `LATEST` was looked up."""
        if str(value) == LATEST and not Path(LATEST).exists():
            from ale._store.directory import VALIDATION, created

            # Those of `ale eval` and `ale ablate` are in folders of their own.
            places = ("*/manifest.json", "*/*/manifest.json")
            found = [path.parent for place in places for path in Path("runs").glob(place)]
            runs = [run for run in found if not (run.parent / VALIDATION).exists()]
            newest = max(found, key=created, default=None)
            said = "" if newest in runs or newest is None else _is_part(newest)
            if not runs:
                self.fail(f"there is no run in ./runs; name a run directory{said}", param, ctx)
            value = max(runs, key=created)
            if said:
                click.echo(f"{LATEST} is {value}{said}", err=True)
        return super().convert(value, param, ctx)


def _is_part(run: Path) -> str:
    """The end of a message: the newest run belongs to a validation."""
    return f"; {run.parent}, which is newer, is a validation: name one of its runs, such as {run}"


RUN = RunPath()
run_argument = click.argument("run", type=RUN, default=LATEST)

overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a config value, for example --set credit.type=grpo; repeatable.",
)

allow_host_option = click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Also answer requests that call this server by NAME. Can be repeated.",
)


def port_option(default: int) -> Callable[[F], F]:
    """The option ``--port`` of a command that listens."""
    return click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=default,
        show_default=True,
        help="Port to listen at; 0 takes a free port.",
    )


format_option = click.option(
    "--format",
    metavar="NAME",
    help="Format of CONFIG, if a package registers others; default: detected from its keys.",
)


def registry_with_commands(ctx: click.Context) -> "Registry":
    """The registry; the plugins' commands are loaded, so that it knows which of them failed."""
    from ale._cli.main import Commands

    root = ctx.find_root().command
    assert isinstance(root, Commands)
    _ = root.added
    return root.registry


def check_kind(kind: str | None) -> None:
    """Raise a usage error for an unknown kind of component; None is allowed."""
    from ale._registry import KINDS, successor
    from ale.errors import nearest

    if kind is not None and kind not in KINDS:
        hint = nearest(kind, KINDS)
        known = f"one of {', '.join(KINDS)}" + (f"; {hint}" if hint else "") + successor(kind)
        raise click.UsageError(f"no such kind '{kind}'; {known}")
