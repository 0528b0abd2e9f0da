"""``ale doctor``."""

import click

from ale._cli.common import registry_of


@click.command("doctor")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Say what is usable on this machine, why, and what would make the rest so.

    \b
    Example:
      ale doctor
    """
    from ale._registry import KINDS

    registry = registry_of(ctx, commands=True)
    for kind in KINDS:
        for offer in registry.offers(kind):
            found = offer.probe()
            if found is None:
                continue
            state = "usable  " if found.usable else "UNUSABLE"
            click.echo(f"{state}  {kind:<9} {offer.component.name:<14} {found.reason}")
            for name, fact in found.facts.items():
                click.echo(f"          {name}: {fact}")
            if found.remedy is not None and not found.usable:
                click.echo(f"          to make it usable: {found.remedy}")
    for broken in registry.quarantined:
        click.echo(f"BROKEN    package   {broken.distribution:<14} {broken.message}")
