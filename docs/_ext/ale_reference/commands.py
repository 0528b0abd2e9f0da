"""The command line, from click's own objects."""

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ale._cli.main import EXIT_CODES, Commands, by_section, cli
from ale._registry import Registry
from ale_reference.markup import code, table


def parts(registry: Registry, root: Path) -> Mapping[str, str]:
    """``commands`` and ``exit-codes``."""
    context = click.Context(cli, info_name="ale")
    assert isinstance(cli, Commands)
    made = [
        f"## {section}\n\n" + "".join("".join(_command(name, context)) for name in names)
        for section, names in cli.sections.items()
    ]
    return {"commands": "".join(made), "exit-codes": _exit_codes()}


def command_names(answer: Any) -> list[str]:
    """The commands of a package, and those that it adds to a group of others."""
    listed = [command for commands in by_section(answer).values() for command in commands]
    return [name for command in listed for name in _added(command)]


def _added(command: click.Command) -> list[str]:
    """Only the package that a group belongs to gives it a help text."""
    if isinstance(command, click.Group) and not command.help:
        return [f"{command.name} {name}" for name in command.commands]
    return [str(command.name)]


def _exit_codes() -> str:
    flat = " ".join(EXIT_CODES.split()).removeprefix("Exit status: ").rstrip(".")
    rows = [entry.split(" ", 1) for entry in flat.split("; ")]
    return table(["status", "meaning"], [[code(number), text] for number, text in rows])


def _command(name: str, parent: click.Context, level: int = 3) -> Iterator[str]:
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * level} `{context.command_path}`\n\n"
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {usage}\n```\n\n"
    yield from _help(inspect.cleandoc(command.help or ""))
    options = [each for each in command.params if isinstance(each, click.Option)]
    rows = [[_names(option, context), _said(option, context)] for option in options]
    if rows:
        yield table(["option", "what it does"], rows) + "\n"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            yield from _command(inner, context, level + 1)


def _help(text: str) -> Iterator[str]:
    """Paragraphs; one that begins with click's mark for "as it stands" is an example."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if not paragraph.startswith("\b"):
            yield _options_as_code(paragraph) + "\n\n"
            continue
        title, *lines = paragraph.removeprefix("\b").strip("\n").splitlines()
        yield f"{title.strip()}\n\n```text\n"
        yield from (line.removeprefix("  ") + "\n" for line in lines)
        yield "```\n\n"


def _names(option: click.Option, context: click.Context) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag or option.count:
        return code(names)
    return code(f"{names} {option.make_metavar(context)}")


def _said(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    text = (record[1] if record else "").replace("[", "\\[").replace("*", "\\*")
    return _options_as_code(text)


def _options_as_code(text: str) -> str:
    """Two hyphens in prose would become a dash."""
    return re.sub(r"(?<![`\w-])(--[a-z][\w-]*)", r"`\1`", text)
