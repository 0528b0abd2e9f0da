"""``ale sandbox list`` and ``ale sandbox prune``."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ale.protocols import SandboxBackend
    from ale.runs import Registry
    from ale.types import SandboxInfo

_Ask = Callable[["SandboxBackend"], Awaitable[Sequence["SandboxInfo"]]]

_type_option = click.option(
    "--type",
    "wanted",
    metavar="TYPE",
    help="Only sandboxes of this type; default: all usable types.",
)


@click.group("sandbox")
def sandbox() -> None:
    """List the sandboxes on this machine, or remove those of dead runs.

    \b
    Examples:
      ale sandbox list
      ale sandbox prune --type docker
    """


@sandbox.command("list")
@_type_option
@click.pass_obj
def list_(registry: "Registry", wanted: str | None) -> None:
    """List all sandboxes, of live and of dead runs.

    \b
    Example:
      ale sandbox list
    """
    _report(registry, wanted, lambda backend: backend.list(), "no sandboxes")


@sandbox.command("prune")
@_type_option
@click.pass_obj
def prune(registry: "Registry", wanted: str | None) -> None:
    """Remove the processes, containers and files of dead runs.

    What can't be removed is named, and all the rest is removed. The exit code is then 1.

    \b
    Example:
      ale sandbox prune
    """
    _report(registry, wanted, lambda backend: backend.prune(), "nothing to remove")


def _report(registry: "Registry", wanted: str | None, ask: _Ask, nothing: str) -> None:
    """Ask each backend and show what all of them say; one that fails keeps no other from it."""
    import asyncio

    from ale.errors import SandboxError

    found: list[SandboxInfo] = []
    failed = []
    for name in _usable(registry, wanted):
        try:
            found += asyncio.run(_ask_backend(registry, name, ask))
        except SandboxError as error:
            failed.append(str(error))
    if found or not failed:
        _show(found, nothing)
    if failed:
        raise SandboxError("\n".join(failed))


def _usable(registry: "Registry", wanted: str | None) -> Iterator[str]:
    """Full names of the usable backends; reports the others on stderr."""
    from ale.runs import find_component

    registrations = (
        registry.registrations("sandbox")
        if wanted is None
        else [find_component(registry, "sandbox", wanted, option="--type")]
    )
    for registration in registrations:
        found = registration.probe()
        if found is None or found.usable:
            yield registration.full_name
        else:
            click.echo(f"{registration.component.name}: not usable here: {found.reason}", err=True)


async def _ask_backend(registry: "Registry", name: str, ask: _Ask) -> "Sequence[SandboxInfo]":
    import os

    from ale.plugin import BuildContext
    from ale.runs import build_choice
    from ale.strict import from_plain

    context = BuildContext(environ=dict(os.environ))
    backend: SandboxBackend
    _, backend = build_choice(from_plain({"type": name}), "sandbox", registry, context)
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
