"""``ale serve`` as click sees it; its work is imported when it runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ale.commands import COMPONENT, PATH, allow_host_option, port_option
from ale_nats_client.commands import login_option, server_of


@click.command("serve")
@click.argument("llm", metavar=COMPONENT, required=False)
@click.option(
    "--config",
    type=PATH,
    metavar="FILE",
    help="Serve the model of this config's section llm; the file needs no other section.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen at; one that others can reach needs --api-key-env.",
)
@allow_host_option
@port_option(8000)
@click.option("--name", help="Name of the model; default: the name in its section.")
@click.option(
    "--api-key-env",
    metavar="VARIABLE",
    help="Answer only requests with the key in this environment variable.",
)
@click.option(
    "--register",
    metavar="FOLDER|URL",
    help="While the server runs, keep an entry for it in this folder, or in NATS at "
    "nats://HOST:PORT/BUCKET, for runs that sample from it.",
)
@login_option
@click.option("--register-as", metavar="NAME", help="Name of the entry; default: host and process.")
@click.option(
    "--end-with-stdin",
    is_flag=True,
    help="End when standard input is closed, as well as by Ctrl-C.",
)
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    llm: str | None,
    config: Path | None,
    host: str,
    allow_host: tuple[str, ...],
    port: int,
    name: str | None,
    api_key_env: str | None,
    register: str | None,
    register_as: str | None,
    end_with_stdin: bool,
    nats_login: tuple[str, ...],
) -> None:
    """Serve a model over HTTP, as an OpenAI-compatible server, until Ctrl-C.

    Runs with llm: {type: servers} can also sample a policy for training. The base URL is printed
    as soon as the server answers. Any `llm` can be served: a policy with a checkpoint or an
    adapter, a script, a model behind another server.

    \b
    Examples:
      ale serve policy:model=outputs/dpo_adapter --port 8000
      ale serve --config my.yaml
    """
    from ale_serving.serve.running import Endpoint, chosen, run

    if (llm is None) == (config is None):
        raise click.UsageError("give either a model or --config FILE")
    if llm is not None and Path(llm).is_file():
        raise click.UsageError(f"'{llm}' is a file; did you mean --config {llm}?")
    section = chosen(llm, config, ctx.obj)
    endpoint = Endpoint(
        host=host,
        allow_host=allow_host,
        port=port,
        name=name,
        api_key_env=api_key_env,
        register=_registry(register, nats_login),
        register_as=register_as or "",
        end_with_stdin=end_with_stdin,
    )
    run(section, ctx.obj, endpoint, say=click.echo)


def _registry(place: str | None, nats_login: Sequence[str]) -> Any:
    """What `--register` names: a folder, or a bucket of NATS."""
    if place is not None and "://" in place:
        return server_of(place, nats_login, "--register")
    if nats_login:
        raise click.UsageError("--nats-login needs --register nats://HOST:PORT/BUCKET")
    return None if place is None else Path(place)
