"""``ale plugins [KIND [NAME]]``."""

from typing import TYPE_CHECKING

import click

from ale._cli.common import check_kind, registry_of
from ale.text import shorten, table

if TYPE_CHECKING:
    from ale._registry import Registration, Registry


@click.command("plugins")
@click.argument("kind", required=False)
@click.argument("name", required=False)
@click.pass_context
def command(ctx: click.Context, kind: str | None, name: str | None) -> None:
    """List what the installed packages offer, or show one component and its options.

    \b
    Examples:
      ale plugins
      ale plugins credit
      ale plugins credit ipa
    """
    from ale._registry import KINDS
    from ale.errors import PluginError

    registry = registry_of(ctx, commands=True)
    check_kind(kind)
    if kind is not None and name is not None:
        try:
            click.echo(_one(registry.find(kind, name)))
        except PluginError as error:
            click.echo(str(error), err=True)
            ctx.exit(2)
        return
    kinds = [kind] if kind else list(KINDS)
    rows = [
        [
            registration.kind,
            registration.component.name,
            registration.distribution,
            registration.component.summary,
        ]
        for each in kinds
        for registration in registry.registrations(each)
    ]
    click.echo(table(["kind", "name", "package", "what it is"], rows))
    click.echo(_faults(registry, kinds), nl=False)


def _faults(registry: "Registry", kinds: list[str]) -> str:
    text = ""
    for kind in kinds:
        names = [registration.component.name for registration in registry.registrations(kind)]
        for name in sorted({name for name in names if names.count(name) > 1}):
            owners = [o.full_name for o in registry.registrations(kind) if o.component.name == name]
            text += f"\n{kind} '{name}' is offered twice; write {' or '.join(owners)}\n"
    for broken in registry.failed:
        text += (
            f"\n{broken.distribution} ({broken.entry_point}) is set aside: {broken.message}\n"
            f"{broken.traceback}"
        )
    return text


def _one(registration: "Registration") -> str:
    component = registration.component
    lines = [
        f"{registration.kind} {component.name}: {component.summary}",
        f"from {registration.distribution} {registration.version}",
    ]
    if component.needs:
        lines.append(f"needs the section(s) {', '.join(component.needs)}")
    rows = _options(component.options)
    if rows:
        lines += ["", table(["option", "type", "default", "what it is"], rows)]
    else:
        lines.append("no options")
    return "\n".join(lines)


def _options(cls: type | None) -> list[list[str]]:
    if cls is None:
        return []
    from ale._config.describe import describe_options

    return [
        [option.name, option.type, shorten(option.default, 40), option.doc]
        for option in describe_options(cls)
    ]
