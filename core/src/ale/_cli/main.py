"""``ale``: the commands of the core and those that plugins add."""

import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from ale.errors import AleError, InputError, PluginError

if TYPE_CHECKING:
    from ale._registry import Registry

EXIT_CODES = """\
Exit status: 0 done; 1 it failed; 2 bad input, nothing was started; 3 done, but some
episodes broke; 130 interrupted; 143 terminated."""

# Name, module and help line of each built-in command: `ale --help` imports none of them.
_BUILT_IN = {
    "run": "Run CONFIG: from tasks to graded and credited episodes on disk.",
    "check": "Check CONFIG and its tasks without running anything.",
    "plugins": "List what the installed packages offer.",
    "doctor": "Say what is usable on this machine, and what would make the rest so.",
}
_FIRST = 2
"""How many of these stand before the plugins' commands: those that a run begins with."""

_names: ContextVar[Mapping[str, str]] = ContextVar("names", default={})  # noqa: B039 (read only)


def _renamed(text: str) -> str:
    """An error in which hints name the commands of the script that was called."""
    for own, name in _names.get().items():
        text = text.replace(own, name)
    return text


class Telling(click.Group):
    """Commands whose errors are messages and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        """Turn the project's errors into messages and exit codes."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            number = len(error.problems)
            plural = "problem" if number == 1 else "problems"
            click.echo(_renamed(f"{error}\n{number} {plural}; nothing was started."), err=True)
            ctx.exit(2)
        except AleError as error:
            click.echo(_renamed(f"{type(error).__name__}: {error}"), err=True)
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo("\nInterrupted.", err=True)
            ctx.exit(128 + signal.SIGINT)
        except BrokenPipeError:
            # Somebody closed the pipe (`ale show ... | head`): nobody is there to be told. What is
            # still buffered must not fail again when the interpreter ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)


class Commands(Telling):
    """Built-in commands by name, then the commands of plugins."""

    @cached_property
    def registry(self) -> "Registry":
        """What is installed; read once per process."""
        from ale._registry import Registry

        return Registry.installed()

    @cached_property
    def added(self) -> dict[str, click.Command]:
        """The commands of plugins."""
        return _plugin_commands(self.registry)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of their use: to run, then what packages add, then what is installed."""
        names = list(_BUILT_IN)
        return [*names[:_FIRST], *self.added, *names[_FIRST:]]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name != "plugins":
            from ale._cli.logs import guard_logs

            guard_logs()  # before anything that could log is imported
        if name in _BUILT_IN:
            command: click.Command = importlib.import_module(f"ale._cli.{name}").command
            return command
        return self.added.get(name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but name the nearest command where there is none."""
        from ale.errors import nearest

        if args and self.get_command(ctx, args[0]) is None:
            hint = nearest(args[0], self.list_commands(ctx))
            said = f"no such command '{args[0]}'" + (f"; {hint}" if hint else "")
            ctx.fail(said + self.registry.suspects())
        if args and args[0] not in _BUILT_IN and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            # A plugin's command may have something to clean up.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Help lines without importing the commands."""
        with formatter.section("Commands"):
            added = {name: command.get_short_help_str(90) for name, command in self.added.items()}
            said = {**_BUILT_IN, **added}
            formatter.write_dl([(name, said[name]) for name in self.list_commands(ctx)])


def _plugin_commands(registry: "Registry") -> dict[str, click.Command]:
    commands: dict[str, click.Command] = {}
    owners = dict.fromkeys(_BUILT_IN, "ale-core")
    for package, answer in registry.answers("ale_commands"):
        if not isinstance(answer, Sequence) or not all(map(_is_command, answer)):
            error = PluginError(f"expected a list of named click commands, got {answer!r}")
            registry.record_broken_hook(package, "ale_commands", error)
            continue
        for command in answer:
            name = command.name
            if name in owners:
                click.echo(
                    f"the command '{name}' is offered by {owners[name]} and by "
                    f"{package.distribution}; the latter is left out",
                    err=True,
                )
                continue
            owners[name] = package.distribution
            commands[name] = command
    return commands


def _is_command(value: object) -> bool:
    return isinstance(value, click.Command) and bool(value.name)


@click.group(cls=Commands, epilog="\b\n" + EXIT_CODES)
@click.version_option(package_name="ale-core", prog_name="ale")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Train agents: tasks, sandboxes, models, graders, chunks and credit, each a plugin.

    \b
    Example:
      ale run configs/quickstart.yaml
    """
    assert isinstance(ctx.command, Commands)
    ctx.obj = ctx.command.registry


def main(arguments: Sequence[str] | None = None, names: Mapping[str, str] | None = None) -> None:
    """The entry point of the ``ale`` command; it ends the process.

    Args:
        arguments: default: the process's own.
        names: commands of `ale` and what to write for them in errors, more specific ones first.
    """
    _names.set(names or {})
    _end_at_ctrl_c()
    try:
        cli(None if arguments is None else list(arguments), prog_name="ale")
    finally:
        _end_at_ctrl_c()


def _end_at_ctrl_c() -> None:
    """Nothing has been started, or all is done: a Ctrl-C ends it here and now.

    As an exception it would be lost where it comes at a bad moment of an import, or be printed as a
    traceback while the interpreter ends.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
