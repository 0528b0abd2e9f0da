"""Every hook with its docstring and who implements it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ale import hookspecs
from ale._registry import KINDS, Registry
from ale_reference.commands import command_names
from ale_reference.packages import folder_of
from ale_reference.records import described


def parts(registry: Registry, root: Path) -> Mapping[str, str]:
    """``hooks``."""
    names = [name for name in vars(hookspecs) if name.startswith("ale_")]
    components = [name for name in names if name in KINDS.values()]
    others = [name for name in names if name not in components]
    text = "".join(
        [
            "## Components\n\n",
            *(_hook(name, registry) for name in components),
            "## Commands, config formats and events\n\n",
            *(_hook(name, registry) for name in others),
        ]
    )
    return {"hooks": text}


def _hook(name: str, registry: Registry) -> str:
    implemented = "; ".join(_implementations(name, registry))
    said = "".join(described(getattr(hookspecs, name)))
    return f"### `{name}`\n\n{said}Implemented by: {implemented}.\n\n"


def _implementations(name: str, registry: Registry) -> Iterator[str]:
    kinds = {hook: kind for kind, hook in KINDS.items()}
    if name in kinds:
        kind = kinds[name]
        registrations = registry.registrations(kind)
        for package in sorted({registration.distribution for registration in registrations}):
            mine = [
                registration.component.name
                for registration in registrations
                if registration.distribution == package
            ]
            listed = ", ".join(f"`{component}`" for component in mine)
            yield f"{_link(package)} ({listed})"
        return
    if name == "ale_commands":
        for package, answer in registry.answers(name):
            listed = ", ".join(f"`ale {command}`" for command in command_names(answer))
            yield f"{_link(package.distribution)} ({listed})"
        return
    if name == "ale_config_formats":
        for package, formats in registry.answers(name):
            listed = ", ".join(f"`{format.name}`" for format in formats)
            yield f"{_link(package.distribution)} ({listed})"
        return
    yield "[observers](components/observer.md)"


def _link(distribution: str) -> str:
    return f"[{distribution}](../../{folder_of(distribution)}/README.md)"
