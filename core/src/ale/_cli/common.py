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


def registry_of(ctx: click.Context) -> "Registry":
    """The registry that the root command has read."""
    from ale._cli.main import Commands

    root = ctx.find_root().command
    assert isinstance(root, Commands)
    return root.registry
