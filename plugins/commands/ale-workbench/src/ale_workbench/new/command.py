"""``ale new``. Imported whenever `ale` starts, so it imports only click; the rest is lazy."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from ale_workbench.new.about import License
    from ale_workbench.new.kinds import Kind
    from ale_workbench.new.names import Names


@click.command("new")
@click.argument("kind")
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder in which the package's folder is created; default: the current one.",
)
@click.option(
    "--author", metavar="'NAME <ADDRESS>'", help="Author of the package; the address is optional."
)
@click.option(
    "--license",
    "license_",
    type=click.Choice(["Apache-2.0", "MIT"]),
    default="Apache-2.0",
    show_default=True,
    help="Licence of the package; its text is written too.",
)
@click.option("--url", help="Homepage of the package.")
@click.pass_context
def command(
    ctx: click.Context,
    kind: str,
    name: str,
    directory: Path,
    author: str | None,
    license_: "License",
    url: str | None,
) -> None:
    """Write a plugin package NAME that registers one component of a KIND.

    KIND is tasks, sandbox, llm, agent, middleware, criterion, chunker, scorer, credit, starts,
    trainer, objective, observer, executor, launch or command. The package installs, is listed by
    `ale plugins` and passes its contract kit; replace its implementation with yours and keep the
    tests passing.

    Two KINDs are no plugins, but write a folder NAME: openclaw a manager and a worker for
    OpenClaw, who work through `ale workers bridge`; openrlhf an agent function and a launch line
    with which OpenRLHF trains on tasks of `ale`.

    \b
    Examples:
      ale new criterion ale-criterion-min-size
      ale new agent ale-agent-mine --author 'Ada Lovelace <ada@example.org>' --license MIT
    """
    from ale_workbench.new.about import About
    from ale_workbench.new.kinds import kind_named
    from ale_workbench.new.names import names
    from ale_workbench.new.workspaces import WORKSPACES, texts_of
    from ale_workbench.new.writing import render

    if kind in WORKSPACES:
        _refuse_about(ctx, kind)
        if not name or Path(name).name != name:
            raise click.BadParameter(f"'{name}' is not the name of a folder", param_hint="NAME")
        _write(directory / name, texts_of(kind))
        click.echo(f"\nNext: read {directory / name / 'README.md'}")
        return
    try:
        chosen_kind = kind_named(kind)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="KIND") from None
    try:
        chosen = names(name, chosen_kind)
        _check_is_free(chosen_kind, chosen)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    about = About(author=author, license=license_, url=url)
    try:
        texts = render(chosen_kind, chosen, about)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--author or --url") from None
    _write(directory / chosen.distribution, texts)
    click.echo(_next(chosen_kind, chosen, directory))


def _refuse_about(ctx: click.Context, kind: str) -> None:
    """Refuse the options that describe a package."""
    for parameter in ("author", "license_", "url"):
        if ctx.get_parameter_source(parameter) is not ParameterSource.DEFAULT:
            option = f"--{parameter.rstrip('_')}"
            raise click.UsageError(f"{option}: '{kind}' writes no package that has one")


def _check_is_free(kind: "Kind", chosen: "Names") -> None:
    """Raise a ValueError for a command that exists: `ale` would ignore one of the two."""
    from ale_workbench.new.kinds import COMMAND

    root = click.get_current_context().find_root()
    taken = root.command.list_commands(root) if isinstance(root.command, click.Group) else ()
    if kind == COMMAND and chosen.component in taken:
        raise ValueError(f"the command 'ale {chosen.component}' exists already")


def _write(root: Path, texts: Mapping[str, str]) -> None:
    from ale_workbench.new.writing import write

    try:
        written = write(root, texts)
    except FileExistsError as error:
        raise click.BadParameter(f"{error.filename} exists already", param_hint="NAME") from None
    except OSError as error:
        where = error.filename or root
        message = f"{where} can't be written: {error.strerror}; expected a folder in which you may"
        raise click.BadParameter(f"{message} make one", param_hint="--directory") from None
    for path in written:
        click.echo(f"wrote {path}")


def _without_gpu(kind: "Kind") -> list[str]:
    """A hint for a kind whose tests need torch, where it is not installed."""
    from importlib.util import find_spec

    if find_spec("torch") or not any(each.startswith("torch") for each in kind.test_needs):
        return []
    command = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
    return [f"  {command}  # without a GPU, or pip takes a CUDA build, 6 GB"]


def _next(kind: "Kind", chosen: "Names", directory: Path) -> str:
    import shlex

    from ale_workbench.new.installing import install_command, uv_note
    from ale_workbench.new.kinds import COMMAND

    look = chosen.component if kind == COMMAND else f"plugins {kind.name} {chosen.component}"
    return "\n".join(
        [
            "",
            "Next:",
            f"  cd {shlex.quote(str(directory / chosen.distribution))}",
            *_without_gpu(kind),
            f"  {install_command()}",
            "  pytest",
            f"  ale {look}",
            *(["  ale validate validate.yaml"] if kind.name == "tasks" else []),
            f"Then replace the implementation in src/{chosen.module}/{kind.stem}.py.",
            *filter(None, [uv_note()]),
        ]
    )
