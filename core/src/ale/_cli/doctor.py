"""``ale doctor``."""

import click

from ale._cli.common import check_kind, registry_of


@click.command("doctor")
@click.argument("kind", required=False)
@click.pass_context
def command(ctx: click.Context, kind: str | None) -> None:
    """Say what is usable on this machine, why, and what would make the rest so.

    \b
    Examples:
      ale doctor
      ale doctor sandbox
    """
    from ale._registry import KINDS

    registry = registry_of(ctx, commands=True)
    check_kind(kind)
    for each in [kind] if kind else KINDS:
        for registration in registry.registrations(each):
            if (found := registration.probe()) is None:
                continue
            state = "usable  " if found.usable else "UNUSABLE"
            click.echo(f"{state}  {each:<9} {registration.component.name:<14} {found.reason}")
            for name, fact in found.facts.items():
                click.echo(f"          {name}: {fact}")
            if found.remedy is not None and not found.usable:
                click.echo(f"          to make it usable: {found.remedy}")
    for broken in registry.failed:
        click.echo(f"BROKEN    package   {broken.distribution:<14} {broken.message}")
