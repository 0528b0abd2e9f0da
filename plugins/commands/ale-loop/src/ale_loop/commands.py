"""``ale loop`` as click sees it; its work is imported when it runs."""

from pathlib import Path
from typing import Any

import click

from ale.commands import PATH
from ale.errors import nearest

_config = click.argument("config", type=PATH)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _Loop(click.Group):
    """A first argument that is no command is the config of a loop to run."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        given = Path(args[0])
        if not given.suffix and not given.exists() and (hint := nearest(args[0], self.commands)):
            ctx.fail(f"no such command or config '{args[0]}': {hint}")
        return super().resolve_command(ctx, ["run", *args])


@click.group("loop", cls=_Loop)
def loop() -> None:
    """Train on episodes as they come, and deploy versions that are not worse.

    `ale loop CONFIG` is `ale loop run CONFIG`.

    \b
    Examples:
      ale loop loop.yaml
      ale loop status loop.yaml
      ale loop restore loop.yaml 3
    """


@loop.command("run")
@_config
@click.pass_context
def run(ctx: click.Context, config: Path) -> None:
    """Run the loop of CONFIG until Ctrl-C or SIGTERM.

    The same command continues it, also after a kill. Exit status: 0 after a Ctrl-C or SIGTERM, 130
    or 143 after a second one; 4 if its budget is spent or it was asked to stop, and 5 if a rule of
    run.stop_if ended it, as of `ale run`.

    \b
    Example:
      ale loop run loop.yaml
    """
    from ale_loop.running import run as run_loop

    ctx.exit(run_loop(config, ctx.obj, click.echo))


@loop.command("restore")
@_config
@click.argument("version", type=click.IntRange(0))
@click.option(
    "--wait",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="Seconds to wait for a running loop, which first ends a step that it has begun.",
)
@click.pass_obj
def restore(registry: Any, config: Path, version: int, wait: float) -> None:
    """Deploy VERSION, which was deployed before; training continues from it.

    This works whether the loop is running or not.

    \b
    Example:
      ale loop restore loop.yaml 3
    """
    from ale_loop.running import restore as restore_version

    restore_version(config, version, registry, click.echo, wait)


@loop.command("status")
@_config
@_json
def status(config: Path, as_json: bool) -> None:
    """Show which episodes a loop has taken, which wait, and which version is deployed.

    \b
    Example:
      ale loop status loop.yaml
    """
    import json

    from ale_loop.options import read_config
    from ale_loop.showing import status as read_status
    from ale_loop.showing import status_text

    found = read_status(read_config(config, started=True).options)
    click.echo(json.dumps(found) if as_json else status_text(found))


@loop.command("history")
@_config
@_json
def history(config: Path, as_json: bool) -> None:
    """List the versions that were deployed, refused, restored and unchanged, with differences.

    \b
    Example:
      ale loop history loop.yaml
    """
    import json

    from attrs import asdict

    from ale_loop.options import read_config
    from ale_loop.showing import history as read_history
    from ale_loop.showing import history_text

    made = read_history(read_config(config, started=True).options.directory)
    click.echo(json.dumps([asdict(each) for each in made]) if as_json else history_text(made))
