"""``ale new``. Imported whenever `ale` starts: the templates wait until they are used."""

from pathlib import Path

import click

from ale_new.kinds import KINDS
from ale_new.names import Names, names


@click.command("new")
@click.argument("kind", type=click.Choice(list(KINDS)), metavar="KIND")
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder in which the package's folder is made; default: the current one.",
)
def command(kind: str, name: str, directory: Path) -> None:
    """Write a plugin package NAME that offers one KIND of component.

    KIND is task-source, sandbox, llm, agent, criterion, chunker, credit-scheme, trainer, observer
    or command. The package installs, is found by `ale plugins` and passes its contract kit as it
    is; replace its body with yours and keep the tests passing.

    Example: ale new criterion ale-criterion-min-size
    """
    from ale_new.writing import write

    try:
        chosen = names(name, KINDS[kind])
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    try:
        written = write(directory, KINDS[kind], chosen)
    except FileExistsError as error:
        raise click.BadParameter(f"{error.filename} exists already", param_hint="NAME") from None
    except OSError as error:
        raise click.BadParameter(str(error), param_hint="--directory") from None
    for path in written:
        click.echo(f"wrote {path}")
    click.echo(_next(kind, chosen, directory))


def _next(kind: str, chosen: Names, directory: Path) -> str:
    listed = KINDS[kind].listed
    look = f"plugins {listed} {chosen.component}" if listed else chosen.component
    return "\n".join(
        [
            "",
            "Next:",
            f"  cd {directory / chosen.distribution}",
            "  pip install -e '.[test]'",
            "  pytest",
            f"  ale {look}",
            f"Then put your own body into src/{chosen.module}/{KINDS[kind].stem}.py.",
        ]
    )
