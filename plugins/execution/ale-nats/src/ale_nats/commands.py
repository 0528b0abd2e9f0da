"""``ale workers run`` and ``events`` as click sees them; their work is imported when they run."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ale_nats_client.commands import login_option, server_of

F = TypeVar("F", bound=Callable[..., Any])


def _server(command: F) -> F:
    """Add the options that say how the server is reached."""
    url = click.option(
        "--nats",
        "url",
        metavar="URL",
        envvar="NATS_URL",
        default="nats://127.0.0.1:4222",
        show_default=True,
        show_envvar=True,
        help="URL of the server; for a cluster, several URLs separated by commas.",
    )
    return url(login_option(command))


@click.group("workers")
def workers() -> None:
    """Let other processes and machines run episodes, and look at their events.

    \b
    Example:
      ale workers run --nats nats://queue:4222 --labels docker,gpu
    """


@workers.command("run")
@_server
@click.option(
    "--labels",
    metavar="A,B",
    default="",
    help="Labels of this machine. It runs episodes of runs whose executor.labels are among them.",
)
@click.option(
    "-n",
    "--slots",
    type=click.IntRange(1),
    help="Maximum number of episodes at the same time; default: the number of processors.",
)
@click.option("--name", help="Name of the worker in messages; default: host and process id.")
@click.option(
    "--exit-when-idle",
    "idle_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="End after this many seconds without an episode to run; default: never.",
)
@click.option(
    "--require",
    metavar="A,B",
    default="",
    help="What the sandbox of a run must isolate: network, files, processes; runs whose sandbox "
    "does not isolate these are refused.",
)
@click.option(
    "--allow-env",
    "readable",
    metavar="VARIABLE",
    multiple=True,
    help="A variable that the components of a run are given; repeatable. Default: all. This does "
    "not hide the others from code that reads the environment of this process by itself.",
)
def worker(
    url: str,
    labels: str,
    slots: int | None,
    name: str | None,
    idle_s: float | None,
    require: str,
    readable: tuple[str, ...],
    nats_login: tuple[str, ...],
) -> None:
    """Run the episodes of runs whose executor is nats, on this machine.

    It runs the episodes of every run whose sandbox, agent, model and criteria are installed here in
    the same versions. Secrets, such as a model's key, are read from this process's environment.

    The first Ctrl-C finishes the running episodes; the second returns them to the queue, for other
    workers.

    \b
    Examples:
      ale workers run --nats nats://queue:4222 --labels docker,gpu
      ale workers run -n 4 --exit-when-idle 600
    """
    from ale_nats.packages import probe

    probe().check()
    from ale_nats.running import run_worker

    run_worker(server_of(url, nats_login, "--nats"), labels, slots, name, idle_s, require, readable)


@workers.command("events")
@_server
@click.argument("run", metavar="[RUN_ID]", required=False)
@click.option("--all", "from_start", is_flag=True, help="Begin with the oldest stored event.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print whole events, one JSON object per line."
)
@click.option("--until-finished", is_flag=True, help="End when a run has finished.")
def tail(
    url: str,
    nats_login: tuple[str, ...],
    run: str | None,
    from_start: bool,
    as_json: bool,
    until_finished: bool,
) -> None:
    """Print the events of a run, or of all runs, as they happen.

    \b
    Examples:
      ale workers events --nats nats://queue:4222
      ale workers events 20260101-120000-3f2a-quickstart --all --until-finished --json
    """
    from ale_nats.packages import probe

    probe().check()
    from ale_nats.running import run_tail

    run_tail(
        server_of(url, nats_login, "--nats"),
        run,
        from_start=from_start,
        as_json=as_json,
        until_finished=until_finished,
    )
