"""``ale plugins [KIND [NAME]]``."""

from typing import TYPE_CHECKING

import click

from ale._cli.common import check_kind, registry_of
from ale.text import shorten, table

if TYPE_CHECKING:
    from ale._registry import Offer, Registry


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
        [offer.kind, offer.component.name, offer.distribution, offer.component.summary]
        for each in kinds
        for offer in registry.offers(each)
    ]
    click.echo(table(["kind", "name", "package", "what it is"], rows))
    click.echo(_faults(registry, kinds), nl=False)


def _faults(registry: "Registry", kinds: list[str]) -> str:
    text = ""
    for kind in kinds:
        names = [offer.component.name for offer in registry.offers(kind)]
        for name in sorted({name for name in names if names.count(name) > 1}):
            owners = [o.full_name for o in registry.offers(kind) if o.component.name == name]
            text += f"\n{kind} '{name}' is offered twice; write {' or '.join(owners)}\n"
    for broken in registry.quarantined:
        text += (
            f"\n{broken.distribution} ({broken.entry_point}) is set aside: {broken.message}\n"
            f"{broken.traceback}"
        )
    return text


def _one(offer: "Offer") -> str:
    component = offer.component
    lines = [
        f"{offer.kind} {component.name}: {component.summary}",
        f"from {offer.distribution} {offer.version}",
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
