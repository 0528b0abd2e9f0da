"""The command line of `ale view`; its work is imported when it runs."""

from pathlib import Path

import click

from ale.commands import PATH, allow_host_option, port_option
from ale_look.store.shared import check_folder, folder_argument, opened, store_option


@click.command("view")
@folder_argument
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen at.",
)
@allow_host_option
@port_option(8900)
@click.option(
    "--token-env",
    metavar="VARIABLE",
    help="The token is in this environment variable. Default: a new one at each start.",
)
@click.option(
    "--bundle",
    type=PATH,
    metavar="DIR",
    help="Write the page and all that it shows as a static site, and end.",
)
@store_option
def view(
    folder: Path,
    host: str,
    allow_host: tuple[str, ...],
    port: int,
    token_env: str | None,
    bundle: Path | None,
    store: str | None,
) -> None:
    """Show the runs in FOLDER, or one run, on a page in the browser; default: runs.

    The page follows runs while they are written, and searches in what agents have said and seen.
    Only who has the token of the printed address is answered. Ends with Ctrl-C.

    \b
    Examples:
      ale view
      ale view runs/20260101-120000-3f2a-quickstart --bundle site
    """
    from ale.errors import StoreError
    from ale.text import counted, size
    from ale_look.view.bundle import write_bundle
    from ale_look.view.catalog import Catalog
    from ale_look.view.server import Endpoint, run

    check_folder(folder)
    with opened(folder, store, update=bundle is not None) as database:
        catalog = Catalog(folder, database)
        if bundle is not None:
            try:
                written = write_bundle(catalog, bundle, click.get_current_context().obj)
            except OSError as error:
                message = f"{bundle}: the site can't be written: {error.strerror}"
                hint = "expected a folder in which you may make one"
                raise StoreError(f"{message}; {hint}") from error
            counts = f"{counted(written.runs, 'run')}, {counted(written.episodes, 'episode')}"
            click.echo(f"{bundle}  {counts}, {size(written.size)}")
            click.echo(f"look at it: python3 -m http.server --directory {bundle}")
            return
        endpoint = Endpoint(host=host, port=port, allow_host=allow_host, token_env=token_env)
        run(catalog, click.get_current_context().obj, endpoint, say=click.echo)
