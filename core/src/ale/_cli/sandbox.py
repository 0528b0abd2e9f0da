"""``ale sandbox list`` and ``ale sandbox prune``."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ale._cli.common import registry_of

if TYPE_CHECKING:
    from ale._registry import Offer, Registry
    from ale.protocols import SandboxBackend
    from ale.types import SandboxInfo

_Ask = Callable[["SandboxBackend"], Awaitable[Sequence["SandboxInfo"]]]

_type_option = click.option(
    "--type", "wanted", metavar="TYPE", help="Only this type of sandbox; default: all usable ones."
)


@click.group("sandbox")
def command() -> None:
    """List the sandboxes on this machine, or remove what killed runs have left.

    \b
    Examples:
      ale sandbox list
      ale sandbox prune --type docker
    """


@command.command("list")
@_type_option
@click.pass_context
def list_(ctx: click.Context, wanted: str | None) -> None:
    """List every sandbox, of runs that are alive and of others.

    \b
    Example:
      ale sandbox list
    """
    _show(_gather(ctx, wanted, lambda backend: backend.list()), "no sandbox is there")


@command.command("prune")
@_type_option
@click.pass_context
def prune(ctx: click.Context, wanted: str | None) -> None:
    """Remove what runs that are no longer alive have left: processes, containers, files.

    \b
    Example:
      ale sandbox prune
    """
    _show(_gather(ctx, wanted, lambda backend: backend.prune()), "nothing was left behind")


def _gather(ctx: click.Context, wanted: str | None, ask: _Ask) -> "list[SandboxInfo]":
    registry = registry_of(ctx)
    found: list[SandboxInfo] = []
    for offer in _usable(registry, wanted):
        found += asyncio.run(_ask_backend(registry, offer, ask))
    return found


def _usable(registry: "Registry", wanted: str | None) -> "Iterator[Offer]":
    """The wanted type, or all; one that can't be used here has nothing here, and is named."""
    offers = registry.offers("sandbox") if wanted is None else [registry.find("sandbox", wanted)]
    for offer in offers:
        probe = offer.component.probe
        found = None if probe is None else probe()
        if found is None or found.usable:
            yield offer
        else:
            click.echo(f"{offer.component.name}: not usable here: {found.reason}", err=True)


async def _ask_backend(registry: "Registry", offer: "Offer", ask: _Ask) -> "Sequence[SandboxInfo]":
    from ale._config.load import select
    from ale._run.parts import build
    from ale.plugin import BuildContext
    from ale.strict import from_plain

    picked = select(from_plain({"type": offer.full_name}), "sandbox", registry, path="sandbox")
    backend: SandboxBackend = build(picked, BuildContext(environ=dict(os.environ)))
    try:
        return await ask(backend)
    finally:
        await backend.aclose()


def _show(found: "list[SandboxInfo]", nothing: str) -> None:
    from ale.text import seconds, table

    if not found:
        click.echo(nothing)
        return
    rows = [
        [
            info.backend,
            info.id,
            "alive" if info.owner_alive else "dead",
            seconds(info.age_s),
            " ".join(f"{name}={value}" for name, value in sorted(info.tags.items())),
            info.detail,
        ]
        for info in found
    ]
    click.echo(table(["type", "id", "owner", "age", "tags", "detail"], rows))
