"""``ale new``. Imported whenever `ale` starts: everything else waits until it is used."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ale_new.kinds import Kind
    from ale_new.names import Names


@click.command("new")
@click.argument("kind")
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder in which the package's folder is made; default: the current one.",
)
def command(kind: str, name: str, directory: Path) -> None:
    """Write a plugin package NAME that offers one KIND of component.

    KIND is tasks, sandbox, llm, agent, criterion, chunker, credit, starts, trainer, observer or
    command. The package installs, is found by `ale plugins` and passes its contract kit as it is;
    replace its body with yours and keep the tests passing.

    Example: ale new criterion ale-criterion-min-size
    """
    from ale_new.kinds import kind_named
    from ale_new.names import names
    from ale_new.writing import write

    try:
        chosen_kind = kind_named(kind)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="KIND") from None
    try:
        chosen = names(name, chosen_kind)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    try:
        written = write(directory, chosen_kind, chosen)
    except FileExistsError as error:
        raise click.BadParameter(f"{error.filename} exists already", param_hint="NAME") from None
    except OSError as error:
        raise click.BadParameter(str(error), param_hint="--directory") from None
    for path in written:
        click.echo(f"wrote {path}")
    click.echo(_next(chosen_kind, chosen, directory))


def _next(kind: "Kind", chosen: "Names", directory: Path) -> str:
    import shlex

    from ale_new.installing import install_command
    from ale_new.kinds import COMMAND

    look = chosen.component if kind == COMMAND else f"plugins {kind.name} {chosen.component}"
    return "\n".join(
        [
            "",
            "Next:",
            f"  cd {shlex.quote(str(directory / chosen.distribution))}",
            f"  {install_command()}",
            "  pytest",
            f"  ale {look}",
            f"Then put your own body into src/{chosen.module}/{kind.stem}.py.",
        ]
    )
