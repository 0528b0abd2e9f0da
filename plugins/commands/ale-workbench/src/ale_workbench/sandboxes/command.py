"""``ale sandbox list`` and ``ale sandbox prune``."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ale.protocols import SandboxBackend
    from ale.runs import Registry
    from ale.types import ImageInfo, SandboxInfo

_Ask = Callable[["SandboxBackend"], Awaitable[Sequence["SandboxInfo"] | Sequence["ImageInfo"]]]

_type_option = click.option(
    "--type",
    "wanted",
    metavar="TYPE",
    help="Only sandboxes of this type; default: all usable types.",
)


@click.group("sandbox")
def sandbox() -> None:
    """List the sandboxes and their images on this machine, or remove what is left of them.

    \b
    Examples:
      ale sandbox list
      ale sandbox images
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


@sandbox.command("images")
@_type_option
@click.pass_obj
def images(registry: "Registry", wanted: str | None) -> None:
    """List the images that were built of tasks or kept of sandboxes, and the disk they use.

    \b
    Example:
      ale sandbox images --type docker
    """
    _report(registry, wanted, _images, "no images")


@sandbox.command("prune")
@_type_option
@click.option("--builds", is_flag=True, help="Remove the images that were built of tasks, too.")
@click.option("--dry-run", is_flag=True, help="List what would be removed, and remove nothing.")
@click.pass_obj
def prune(registry: "Registry", wanted: str | None, builds: bool, dry_run: bool) -> None:
    """Remove the processes, containers and files of dead runs.

    What can't be removed is named, and all the rest is removed. The exit code is then 1. States
    that a run keeps (`run.keep`) stay as long as its folder does.

    \b
    Examples:
      ale sandbox prune --dry-run
      ale sandbox prune --builds
    """
    nothing = "no sandboxes to remove" if builds else "nothing to remove"
    _report(registry, wanted, _dead if dry_run else _prune, nothing)
    if builds:
        ask = _builds if dry_run else _remove_builds
        _report(registry, wanted, ask, "no built images to remove")


async def _prune(backend: "SandboxBackend") -> "Sequence[SandboxInfo]":
    return await backend.prune()


async def _dead(backend: "SandboxBackend") -> "Sequence[SandboxInfo]":
    return [each for each in await backend.list() if not (each.owner_alive or each.kept)]


async def _images(backend: "SandboxBackend") -> "Sequence[ImageInfo]":
    from ale.protocols import KeepsImages

    return await backend.images() if isinstance(backend, KeepsImages) else []


async def _builds(backend: "SandboxBackend") -> "Sequence[ImageInfo]":
    return [each for each in await _images(backend) if each.kind == "build"]


async def _remove_builds(backend: "SandboxBackend") -> "Sequence[ImageInfo]":
    from ale.protocols import KeepsImages

    return await backend.remove_builds() if isinstance(backend, KeepsImages) else []


def _report(registry: "Registry", wanted: str | None, ask: _Ask, nothing: str) -> None:
    """Ask each backend and show what all of them say; one that fails keeps no other from it."""
    import asyncio

    from ale.errors import SandboxError

    found: list[SandboxInfo | ImageInfo] = []
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


async def _ask_backend(
    registry: "Registry", name: str, ask: _Ask
) -> "Sequence[SandboxInfo] | Sequence[ImageInfo]":
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


def _show(found: "Sequence[SandboxInfo | ImageInfo]", nothing: str) -> None:
    from ale.text import seconds, table
    from ale.types import ImageInfo, SandboxInfo

    if not found:
        click.echo(nothing)
        return
    made = [info for info in found if isinstance(info, ImageInfo)]
    if made:
        _show_images(made)
        return
    rows = [
        [
            info.backend,
            info.id,
            _owner(info),
            seconds(info.age_s),
            " ".join(f"{name}={value}" for name, value in sorted(info.tags.items())),
            info.detail,
        ]
        for info in found
        if isinstance(info, SandboxInfo)
    ]
    click.echo(table(["type", "id", "owner", "age", "tags", "detail"], rows))


def _owner(info: "SandboxInfo") -> str:
    if info.kept:
        return "kept"
    return "alive" if info.owner_alive else "dead"


def _show_images(found: "Sequence[ImageInfo]") -> None:
    from ale.text import counted, seconds, table

    rows = [
        [
            info.backend,
            info.id.removeprefix("sha256:")[:12],
            info.kind,
            _mib(info.size_bytes),
            seconds(info.age_s),
            " ".join(info.names),
        ]
        for info in sorted(found, key=lambda info: -info.size_bytes)
    ]
    click.echo(table(["type", "id", "kind", "size", "age", "names"], rows, right=(3,)))
    n = counted(len(found), "image")
    if not all(info.layers for info in found):
        total = _mib(sum(info.size_bytes for info in found))
        click.echo(f"{n}, {total} together; layers that images share count in each")
        return
    layers = {(info.backend, name): size for info in found for name, size in info.layers.items()}
    total = _mib(sum(layers.values()))
    click.echo(f"{n}, {total} on disk; a layer that images share counts once here, above in each")


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
