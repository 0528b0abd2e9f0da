"""Count what docs/why/fewer-packages.md compares: ``python docs/_ext/counts.py``."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import click

from ale._cli.main import cli
from ale._config.model import EvaluationOptions, LaunchOptions, ProcessOptions, RunOptions
from ale._registry import KINDS, Registry

ROOT = Path(__file__).parents[2]
SECTIONS = {
    "run": RunOptions,
    "launch": LaunchOptions,
    "processes": ProcessOptions,
    "evaluation": EvaluationOptions,
}


def tracked(*patterns: str) -> list[Path]:
    """The files that git knows."""
    command = ["git", "ls-files", "-z", *patterns]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in found.split("\0") if name]


def offered() -> list[tuple[str, type]]:
    """The options class of each component and section, with its name."""
    registry = Registry.installed()
    components = [
        (each.component.name, each.component.options)
        for kind in KINDS
        for each in registry.registrations(kind)
    ]
    return [(name, cls) for name, cls in (*components, *SECTIONS.items()) if cls is not None]


def config_options() -> dict[tuple[str, str], set[str]]:
    """Each option by the class that declares it: what several components inherit counts once.

    With the names of the components and sections that have it.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for name, cls in offered():
        for field in attrs.fields(cls):
            if field.init:
                found.setdefault((_owner(cls, field.name), field.name), set()).add(name)
    return found


def _owner(cls: type, name: str) -> str:
    declaring = (c for c in reversed(cls.__mro__) if name in vars(c).get("__annotations__", {}))
    owner = next(declaring, cls)
    return f"{owner.__module__}.{owner.__qualname__}"


def commands(group: click.Group, parent: click.Context) -> Iterator[tuple[int, click.Command]]:
    """Every command below a group, with its depth."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None or command.hidden:
            continue
        yield 1, command
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=parent)
            yield from ((depth + 1, each) for depth, each in commands(command, context))


def main() -> None:
    """Print a line for each count."""
    sources = tracked("core/src/*.py", "plugins/*/*/src/*.py")
    trees = [ast.parse(path.read_text()) for path in sources]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    listed = [*commands(cli, click.Context(cli, info_name="ale"))]
    options = [
        option
        for _, command in listed
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    counts = {
        "distributions": len(tracked("core/pyproject.toml", "plugins/**/pyproject.toml")),
        "files of src": len(sources),
        "classes": len(classes),
        "lines of src": sum(len(path.read_text().splitlines()) for path in sources),
        "commands at the top": len([depth for depth, _ in listed if depth == 1]),
        "commands with those of groups": len(listed),
        "options of commands": len(options),
        "options of configs": len(config_options()),
    }
    for name, number in counts.items():
        print(f"{name:<32}{number:>8,}")


if __name__ == "__main__":
    main()
