"""``ale init`` and ``ale status`` as click sees them; their work is imported when they run."""

from pathlib import Path
from typing import Any

import click

from ale.commands import PATH


@click.command("init")
@click.argument("path", type=PATH, default=Path("ale.yaml"), required=False)
@click.option("--yes", is_flag=True, help="Ask nothing; use what is recommended here.")
@click.option("--tasks", metavar="FOLDER", help="Folder of tasks. Default: tasks, with an example.")
@click.option(
    "--sandbox",
    metavar="NAME",
    help="Type of the sandbox. Default: auto, the best that is usable here.",
)
@click.option(
    "--llm",
    metavar="NAME",
    help="Type of the model. Default: that of a model server that answers here.",
)
@click.option("--base-url", metavar="URL", help="URL of the model server.")
@click.option(
    "--model", metavar="NAME", help="Name of the model. Default: the first that the server lists."
)
@click.option(
    "--agent", metavar="NAME", help="Type of the agent. Default: iflow, if it is installed."
)
@click.option(
    "--rollouts", type=click.IntRange(1), help="Attempts at each task. Default: 4.", metavar="N"
)
@click.pass_obj
def init(registry: Any, /, path: Path, yes: bool, rollouts: int | None, **options: Any) -> None:
    """Write a config to PATH for what is on this machine, and check it.

    It asks which sandbox, model server, model and agent to use, among those that are installed and
    answer here. It does not ask for what an option gives. PATH is ale.yaml by default; an existing
    file is not changed.

    \b
    Examples:
      ale init
      ale init my.yaml --yes --tasks my-tasks --llm vllm --model Qwen/Qwen3-8B
    """
    from ale_workbench.machine.wizard import Given, run

    asks = not yes
    run(path, Given(rollouts=rollouts, **options), registry, asks=asks)


@click.command("status")
@click.option(
    "--runs",
    type=PATH,
    default=Path("runs"),
    show_default=True,
    metavar="FOLDER",
    help="Folder of run directories.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Number of runs to show, newest first; those that are running are always shown.",
)
def status(runs: Path, as_json: bool, limit: int) -> None:
    """Show the runs of a folder, and the workers, servers, proxies and loops of this machine.

    A run is running, finished or interrupted; if interrupted, its process is gone and did not say
    how it ended.

    \b
    Examples:
      ale status
      ale status --runs runs --json
    """
    import json

    from ale_workbench.machine.status import collected, shown

    found = collected(runs, limit)
    click.echo(json.dumps(found, indent=2) if as_json else shown(found))
