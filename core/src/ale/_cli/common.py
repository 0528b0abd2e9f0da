"""What several commands share."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ale._registry import Registry

overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Lay a value over the config: --set credit.type=grpo. May be given again.",
)

format_option = click.option(
    "--format",
    metavar="NAME",
    help="Read CONFIG as of another format that a package knows; default: as its keys say.",
)


def registry_of(ctx: click.Context, *, commands: bool = False) -> "Registry":
    """The registry that the root command has read.

    Args:
        commands: ask for the plugins' commands too, so that it knows who fails to give them.
    """
    from ale._cli.main import Commands

    root = ctx.find_root().command
    assert isinstance(root, Commands)
    if commands:
        _ = root.added
    return root.registry


def check_kind(kind: str | None) -> None:
    """Refuse what is no kind of component; None is none, and right."""
    from ale._registry import KINDS
    from ale.errors import nearest

    if kind is not None and kind not in KINDS:
        hint = nearest(kind, KINDS)
        raise click.UsageError(
            f"no such kind '{kind}'; one of {', '.join(KINDS)}" + (f"; {hint}" if hint else "")
        )
