"""``ale``: the commands of the core and of plugins."""

import errno
import gc
import importlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve, frozen

from ale.errors import AleError, InputError, PluginError
from ale.text import counted, shorten

if TYPE_CHECKING:
    from ale._registry import Registry

EXIT_CODES = """\
Exit status: 0 success; 1 error; 2 invalid input, nothing was started; 3 finished, but some
episodes broke; 4 ended early, as its budget is spent or it was asked to stop; 5 a rule of
run.stop_if ended it; 75 a process of the run was killed, and the run can be resumed;
130 interrupted; 143 terminated."""

# Name, module and help line of each built-in command: `ale --help` imports none of them.
_BUILT_IN = {
    "run": "Run CONFIG: sample, grade and credit episodes, and train on them.",
    "regrade": "Grade the episodes of RUN again, with newer tests or other criteria.",
    "steer": "Pause, resume, slow down or end RUN while it runs, from another terminal.",
    "check": "Validate CONFIG and its tasks and print every option; nothing is run.",
    "plugins": "List what a config can choose from, or show the options of one component.",
    "doctor": "Show which components work on this machine, and how to fix the others.",
}
_SECTIONS = {
    "Run": ("run", "check", "regrade", "steer"),
    "Look": (),
    "Data and training": (),
    "Models and machines": (),
    "Extend": ("plugins", "doctor"),
}
"""The sections of `ale --help`, with the built-in commands that begin each."""

_OTHERS = "Others"
"""The section of commands for which a plugin names none."""

_RENAMED = {
    "bench": "eval",
    "bridge": "workers bridge",
    "collect": "data collect",
    "credit": "show credit",
    "dataset": "data",
    "events": "workers events",
    "forks": "show forks",
    "harbor-job": "data harbor-job",
    "manage": "workers manage",
    "results": "show results",
    "score": "data score",
    "server": "engines",
    "traj": "runs",
    "values": "data values",
    "worker": "workers run",
}
"""Commands that had names of their own, for who types one."""

_LINE = 200
"""Characters of a help line: click would cut it off at the first line's end."""

_PROBLEMS = 20
"""Problems that are shown at once: one mistake can have a problem in each of a thousand tasks."""

_names: ContextVar[Mapping[str, str]] = ContextVar("names", default={})  # noqa: B039 (read only)


def _renamed(text: str) -> str:
    """An error in which hints name the commands of the script that was called."""
    for own, name in _names.get().items():
        text = text.replace(own, name)
    return text


_STARTED = "ale.started"
"""Key of the context's `meta`, set as soon as a `Starting` command has started something."""


class Starting(click.Command):
    """A command that starts work: an error in its input says that nothing was started.

    With the option ``--set``, it knows that many look for keys of the config among its options.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; an option near a key of the config is shown as ``--set`` takes it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from ale._config.load import keys_near

            own = [option for each in self.params for option in each.opts]
            keys = keys_near(error.option_name, own, ctx.obj) if "--set" in own else []
            if not keys:
                raise
            ways = " or ".join(f"--set {key}=VALUE" for key in keys)
            message = f"no such option {error.option_name}; write {ways}"
            raise click.UsageError(message, ctx) from None


def started() -> None:
    """Note that the running command has started something: errors no longer say the opposite."""
    click.get_current_context().meta[_STARTED] = True


class ReportingGroup(click.Group):
    """A group that turns the project's errors into messages and exit codes."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """As click does; the group's help has the first sentence of the command's."""
        super().add_command(cmd, name)
        cmd.short_help = cmd.get_short_help_str(_LINE)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does, with messages and exit codes for the project's errors."""
        try:
            return super().invoke(ctx)
        except InputError as error:
            starting = isinstance(self.get_command(ctx, ctx.invoked_subcommand or ""), Starting)
            ending = "; nothing was started." if starting and _STARTED not in ctx.meta else "."
            click.echo(_renamed(f"{_problems(error)}{ending}"), err=True)
            ctx.exit(2)
        except AleError as error:
            notes = getattr(error, "__notes__", ())
            lines = (f"{type(error).__name__}: {error}", *notes)
            click.echo(_renamed("\n".join(lines)), err=True)
            ctx.exit(error.exit_status)
        except (KeyboardInterrupt, click.Abort) as error:
            # At a question, click turns Ctrl-C and the end of the input into an Abort.
            cause = error.__context__ if isinstance(error, click.Abort) else error
            if not isinstance(cause, KeyboardInterrupt):
                raise
            click.echo("\nInterrupted.", err=True)
            ctx.exit(128 + signal.SIGINT)
        except (OSError, UnicodeEncodeError) as error:
            known = _of_a_file(error) if isinstance(error, OSError) else _of_an_argument(error)
            if known is None:
                raise
            message, status = known
            if message:
                click.echo(message, err=True)
            ctx.exit(status)


def _problems(error: InputError) -> str:
    """The problems and their number; only the first of many."""
    number = counted(len(error.problems), "problem")
    if len(error.problems) > _PROBLEMS:
        number += f", of which these are the first {_PROBLEMS}"
    return "\n".join([*map(str, error.problems[:_PROBLEMS]), number])


_OF_A_PATH = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP),
)
"""Errors that say what is wrong with a path that was given, such as a file in place of a folder."""


def _of_a_file(error: OSError) -> tuple[str, int] | None:
    """Message and exit status for an error that is no bug; None for any other."""
    if error.errno in _OF_A_PATH and error.filename is not None:
        return f"{error.filename}: {error.strerror}", 1
    full = error.errno == errno.ENOSPC and error.filename is None
    if not full and not isinstance(error, BrokenPipeError):
        return None
    # Flushing the buffers when the interpreter exits must not fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # A pipe is broken where its reader has closed it (`ale show ... | head`).
    return (f"{error.strerror}: the output is incomplete", 1) if full else ("", 0)


def _of_an_argument(error: UnicodeEncodeError) -> tuple[str, int] | None:
    """The same where an argument, or the working folder's name, has bytes that are no text."""
    given = [*sys.argv, str(Path.cwd())]
    if not any(error.object[error.start : error.end] in each for each in given):
        return None
    shown = os.fsencode(error.object).decode("utf-8", "replace")
    return f"'{shorten(shown, _LINE)}' is not UTF-8 and can't be used here", 2


class Commands(ReportingGroup):
    """Built-in commands by name, then the commands of plugins."""

    @cached_property
    def registry(self) -> "Registry":
        """The installed packages; read once per process."""
        from ale._registry import Registry

        return Registry.installed()

    @cached_property
    def added(self) -> "dict[str, _Added]":
        """The commands of plugins by name."""
        return _plugin_commands(self.registry)

    @property
    def sections(self) -> dict[str, list[str]]:
        """The names of all commands by section, in the order of the help."""
        names = {section: list(first) for section, first in _SECTIONS.items()}
        for name, added in sorted(self.added.items()):
            names.setdefault(added.section, []).append(name)
        return {section: listed for section, listed in names.items() if listed}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Section by section."""
        return [name for names in self.sections.values() for name in names]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name != "plugins":
            from ale._cli.logs import guard_logs

            guard_logs()  # before anything that could log is imported
        if name in _BUILT_IN:
            command: click.Command = importlib.import_module(f"ale._cli.{name}").command
            return command
        added = self.added.get(name)
        return None if added is None else added.command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name for an unknown command."""
        from ale._registry import how_to_install
        from ale.errors import nearest

        if args and self.get_command(ctx, args[0]) is None:
            if args[0] in _RENAMED:
                ctx.fail(f"`ale {args[0]}` is now `ale {_RENAMED[args[0]]}`")
            hint = how_to_install("command", args[0]) or nearest(args[0], self.list_commands(ctx))
            message = f"no such command '{args[0]}'" + (f"; {hint}" if hint else "")
            ctx.fail(message + self.registry.suspects())
        if args and args[0] not in _BUILT_IN and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            # A plugin's command may have to clean up on Ctrl-C.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Help lines without importing the commands."""
        for section, names in self.sections.items():
            with formatter.section(section):
                formatter.write_dl([(name, self._help_line(name)) for name in names])

    def _help_line(self, name: str) -> str:
        if name in _BUILT_IN:
            return _BUILT_IN[name]
        return self.added[name].command.get_short_help_str(_LINE)


@frozen
class _Added:
    """A command of a plugin."""

    command: click.Command
    section: str
    owner: str
    """The distribution that registers it."""


def _plugin_commands(registry: "Registry") -> dict[str, _Added]:
    commands: dict[str, _Added] = {}
    for package, answer in registry.answers("ale_commands"):
        sections = by_section(answer)
        if not all(_are_commands(each) for each in sections.values()):
            error = PluginError(f"expected a list of named click commands, got {answer!r}")
            registry.record_broken_hook(package, "ale_commands", error)
            continue
        for section, listed in sections.items():
            for command in listed:
                _list_whole_sentences(command)
                added = _Added(command, section, package.distribution)
                if command.name in _BUILT_IN:
                    _ignored(added, "ale-core")
                else:
                    _add(commands, added)
    return commands


def by_section(answer: Any) -> Mapping[str, Any]:
    """A package's answer to `ale_commands`, by section."""
    return answer if isinstance(answer, Mapping) else {_OTHERS: answer}


def _are_commands(answer: object) -> bool:
    return isinstance(answer, Sequence) and all(
        isinstance(command, click.Command) and command.name for command in answer
    )


def _add(commands: dict[str, _Added], added: _Added) -> None:
    """Add a command, or the commands of a group to the group of the same name."""
    name = str(added.command.name)
    known = commands.get(name)
    if known and isinstance(known.command, click.Group) and isinstance(added.command, click.Group):
        commands[name] = _joined(known, added)
    elif known:
        _ignored(added, known.owner)
    else:
        commands[name] = added


def _ignored(added: _Added, owner: str) -> None:
    click.echo(
        f"the command '{added.command.name}' is registered by {owner} and by {added.owner}; "
        "the latter is ignored",
        err=True,
    )


def _joined(known: _Added, added: _Added) -> _Added:
    """A group with the commands of two packages, as the one with a help text has it."""
    subcommands: dict[str, _Added] = {}
    for part in (known, added):
        assert isinstance(part.command, click.Group)
        for command in part.command.commands.values():
            _add(subcommands, evolve(part, command=command))
    base = known if known.command.help else added
    # A copy: the group itself belongs to a package, and may be read again.
    group = copy(base.command)
    assert isinstance(group, click.Group)
    group.commands = {name: each.command for name, each in subcommands.items()}
    return evolve(base, command=group)


def _list_whole_sentences(command: click.Command) -> None:
    """Let the help of a group show the first sentence of each command's help, not half of it."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            each.short_help = each.get_short_help_str(_LINE)
            _list_whole_sentences(each)


@click.group(cls=Commands, epilog="\b\n" + EXIT_CODES)
@click.version_option(package_name="ale-core", prog_name="ale")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Train agents with reinforcement learning. Tasks, sandboxes, models, graders, credit schemes
    and trainers are plugins.

    \b
    Example:
      ale run configs/quickstart.yaml
    """
    assert isinstance(ctx.command, Commands)
    ctx.obj = ctx.command.registry
    gc.enable()


def main(arguments: Sequence[str] | None = None, names: Mapping[str, str] | None = None) -> None:
    """The entry point of the ``ale`` command; it exits the process.

    Args:
        arguments: of the command line; default: `sys.argv`.
        names: commands of `ale` and what to write for them in errors, more specific ones first.
    """
    _names.set(names or {})
    _exit_on_ctrl_c()
    gc.disable()  # until a command begins: of what is imported nothing is garbage
    try:
        cli(None if arguments is None else list(arguments), prog_name="ale")
    finally:
        gc.enable()
        _exit_on_ctrl_c()


def _exit_on_ctrl_c() -> None:
    """Let Ctrl-C kill the process at once: nothing has been started yet, or all is done.

    A KeyboardInterrupt could get lost during an import, or be printed as a traceback while the
    interpreter exits.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
