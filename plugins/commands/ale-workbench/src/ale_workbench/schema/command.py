"""The click command; its implementation is imported when it runs."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ale.runs import Registry


@click.command("schema")
@click.argument("name", required=False)
@click.pass_obj
def schema(registry: "Registry", name: str | None) -> None:
    """Print the JSON Schema NAME, or list the names.

    The schema of a config has the options of all installed packages.

    \b
    Examples:
      ale schema
      ale schema config > config.schema.json
    """
    import json

    from ale.text import table
    from ale_workbench.schema.catalogue import catalogue, made

    if name is None:
        click.echo(table(("name", "of"), list(catalogue().items())))
    else:
        click.echo(json.dumps(made(name, registry), indent=2))
