"""Options and helpers that several commands use."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ale._registry import Registry

PATH = click.Path(path_type=Path)
COMPONENT = "NAME[:OPTION=VALUE,...]"
"""Metavar of an option that names a component, as `ale.runs.parse_choice` reads it."""
run_argument = click.argument("run", type=PATH)

overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a config value, for example --set credit.type=grpo; repeatable.",
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
    from ale._registry import KINDS
    from ale.errors import nearest

    if kind is not None and kind not in KINDS:
        hint = nearest(kind, KINDS)
        raise click.UsageError(
            f"no such kind '{kind}'; one of {', '.join(KINDS)}" + (f"; {hint}" if hint else "")
        )
