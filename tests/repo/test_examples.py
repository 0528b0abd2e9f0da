"""The help of every command has examples, and each is a command line that the command takes."""

import re
import shlex
from collections.abc import Iterator, Mapping

import click
import pytest

import ale_lite.scripts
from ale._cli.main import cli

PROGRAMS: Mapping[str, click.Command] = {
    "ale": cli,
    **{name: getattr(ale_lite.scripts, name) for name in ("iflow", "rock", "roll", "tbp")},
}


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and those below it, each by its whole name."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from commands(f"{name} {child}", found)


ALL = dict(pair for program in PROGRAMS.items() for pair in commands(*program))


@pytest.mark.parametrize("name", ALL)
def test_the_help_of_every_command_has_an_example_that_parses(name: str) -> None:
    command = ALL[name]
    found = examples(command, name.split()[0])
    assert any(line == name or line.startswith(f"{name} ") for line in found), command.help
    for line in found:
        parse(line)


def examples(command: click.Command, program: str) -> list[str]:
    """The lines of a help text that are commands."""
    text = re.sub(r"\\\n\s*", "", command.help or "")
    return re.findall(rf"^\s*(?:Example: )?({program} .+|{program})$", text, flags=re.MULTILINE)


def parse(line: str) -> None:
    """Read a command line as click does, without looking at its files.

    Raises:
        UsageError: an option is unknown, a choice does not exist, or an argument is missing.
    """
    program, *arguments = shlex.split(line)
    command, context = PROGRAMS[program], click.Context(PROGRAMS[program])
    while isinstance(command, click.Group) and arguments:
        _, child, arguments = command.resolve_command(context, arguments)
        assert child is not None
        command, context = child, click.Context(child)
    values, _, _ = command.make_parser(context).parse_args(list(arguments))
    for parameter in command.params:
        value = values.get(parameter.name)
        if parameter.required and value is None:
            raise click.MissingParameter(ctx=context, param=parameter)
        if isinstance(value, str) and not isinstance(parameter.type, click.Path | click.File):
            parameter.type_cast_value(context, value)
