"""``ale doctor``."""

from typing import TYPE_CHECKING

import click

from ale._cli.common import check_kind, registry_with_commands

if TYPE_CHECKING:
    from ale._registry import Registration, Registry


@click.command("doctor")
@click.argument("kind", required=False)
@click.pass_context
def command(ctx: click.Context, kind: str | None) -> None:
    """Show which components work on this machine, why others don't, and how to fix that.

    \b
    Examples:
      ale doctor
      ale doctor sandbox
    """
    from ale._registry import KINDS

    registry = registry_with_commands(ctx)
    check_kind(kind)
    if kind in (None, "sandbox"):
        click.echo(_auto(registry))
    for each in [kind] if kind else KINDS:
        for registration in registry.registrations(each):
            for line in _lines(registration):
                click.echo(line)
    for broken in registry.failed:
        click.echo(f"BROKEN    package   {broken.distribution:<14} {broken.message}")


def _auto(registry: "Registry") -> str:
    """The choice of ``sandbox: {type: auto}`` here, without and with an image."""
    from ale._config.auto import choose_sandbox
    from ale.errors import PluginError

    lines = []
    for condition, given in (("", ()), (" with sandbox.image", ("image",))):
        try:
            found, choice = choose_sandbox(registry, given, (), lambda _: None)
        except PluginError as error:
            lines.append(f"auto{condition}: {error}")
            continue
        skipped = f"; skipped {'; '.join(choice.skipped)}" if choice.skipped else ""
        lines.append(f"auto{condition}: {found.component.name} ({choice.reason}){skipped}")
    return "\n".join(lines) + "\n"


def _lines(registration: "Registration") -> list[str]:
    found = registration.probe()
    if found is None:
        return []
    name = registration.component.name
    state = "usable  " if found.usable else "UNUSABLE"
    lines = [f"{state}  {registration.kind:<9} {name:<14} {found.reason}"]
    lines += [f"          {fact}: {value}" for fact, value in found.facts.items()]
    if found.remedy is not None and not found.usable:
        lines.append(f"          to make it usable: {found.remedy}")
    return lines
