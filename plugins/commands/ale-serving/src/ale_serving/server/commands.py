"""``ale engines`` as click sees it; its work is imported when it runs."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ale.commands import COMPONENT, PATH
from ale_nats_client.commands import login_option, server_of

_FOLDER = click.option(
    "--folder",
    type=PATH,
    metavar="FOLDER",
    envvar="ALE_SERVERS",
    help="Registry of servers: a folder with one file for each, and their logs. Default: "
    "$ALE_SERVERS, or ~/.cache/ale/servers.",
)
_KEY = click.option(
    "--api-key-env",
    metavar="VARIABLE",
    help="Environment variable with the key that the servers require.",
)


def _in_nats(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a registry for several hosts."""
    text = "The registry is in NATS, for several hosts: nats://HOST:PORT/BUCKET."
    return click.option("--nats", metavar="URL", help=text)(login_option(command))


@click.group("engines")
def engines() -> None:
    """Install, start, list and stop inference servers that runs sample from.

    A run uses the servers of a folder by llm: {type: servers, registry: FOLDER}; they keep running
    when it ends.

    \b
    Examples:
      ale engines start policy:model=my_model --name one
      ale engines install vllm
      ale engines start vllm-server:model=my_model --name two
      ale engines list
      ale engines stop one
    """


@engines.command("start")
@click.argument("llm", metavar=COMPONENT, required=False)
@click.option("--config", type=PATH, metavar="FILE", help="Serve this config's section llm.")
@click.option("--name", help="Name of the server; default: server-1 and so on.")
@click.option(
    "--count", type=click.IntRange(1), default=1, help="Number of servers: NAME-1, NAME-2, ..."
)
@click.option("--gpus", metavar="LIST", help="CUDA_VISIBLE_DEVICES of the server, such as 0,1.")
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Maximum seconds until a server answers; one that does not is stopped.",
)
@click.option("--host", metavar="ADDRESS", help="Address of this machine; default: 127.0.0.1.")
@_KEY
@_in_nats
@_FOLDER
def start(
    llm: str | None,
    config: Path | None,
    name: str | None,
    count: int,
    gpus: str | None,
    wait: float,
    host: str | None,
    api_key_env: str | None,
    folder: Path | None,
    nats: str | None,
    nats_login: tuple[str, ...],
) -> None:
    """Start a server, wait until it answers, and leave it running.

    It gets a free port and a log, and is started again after a crash.

    Example: ale engines start policy:model=my_model --count 2 --gpus 0
    """
    from ale_serving.server.running import names_for, start

    if (llm is None) == (config is None):
        raise click.UsageError("give either a model or --config FILE")
    served = [llm] if llm is not None else ["--config", str(Path(str(config)).absolute())]
    served += [] if host is None else ["--host", host]
    served += [] if api_key_env is None else ["--api-key-env", api_key_env]
    place = _place(folder, nats, nats_login)
    for each in names_for(place, name, count):
        entry = start(place, each, served, gpus=gpus, wait_s=wait)
        click.echo(f"{each}  {entry.url}")


@engines.command("install")
@click.argument("program")
@click.option(
    "--build",
    metavar="BUILD",
    help="Build of the program, such as cpu or cuda; default: the one for what this machine has.",
)
def install(program: str, build: str | None) -> None:
    """Install a server program into an environment of its own.

    The environment is in $ALE_SERVER_ENVIRONMENTS, or ~/.cache/ale/environments, and never that of
    the trainer. A program that is already installed is left as it is.

    Example: ale engines install vllm
    """
    from ale_serving.server.installing import install

    click.echo(f"{program} is installed in {install(program, build)}")


@engines.command("list")
@_KEY
@_in_nats
@_FOLDER
def list_(
    api_key_env: str | None, folder: Path | None, nats: str | None, nats_login: tuple[str, ...]
) -> None:
    """List the servers of a registry: address, model, version, load and start.

    Example: ale engines list
    """
    from ale_serving.server.listing import listing

    key = None if api_key_env is None else os.environ.get(api_key_env)
    for line in listing(_place(folder, nats, nats_login), key):
        click.echo(line)


@engines.command("stop")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Stop all servers that were started on this machine, but not those that another command "
    "is starting.",
)
@_FOLDER
def stop(names: tuple[str, ...], every: bool, folder: Path | None) -> None:
    """Stop servers of this machine.

    Example: ale engines stop one
    """
    from ale_serving.server.running import kept, stop

    if bool(names) == every:
        raise click.UsageError("give either names or --all")
    place = _place(folder)
    found = kept(place) if every else []
    for each in found:
        if each.is_starting:
            click.echo(
                f"{each.name} is being started by another command (process {each.starter}), and is "
                f"left alone: ale engines stop {each.name} stops it too",
                err=True,
            )
    for name in [each.name for each in found if not each.is_starting] if every else names:
        stop(place, name)
        click.echo(f"{name} is stopped")


def _place(folder: Path | None, nats: str | None = None, nats_login: Sequence[str] = ()) -> Any:
    from ale_serving.server.places import Place
    from ale_serving.server.running import default_folder

    if nats is None and nats_login:
        raise click.UsageError("--nats-login needs --nats nats://HOST:PORT/BUCKET")
    server = None if nats is None else server_of(nats, nats_login, "--nats")
    return Place.of((folder or default_folder()).absolute(), server)
