"""``ale check CONFIG``."""

import gc
from pathlib import Path

import click

from ale._cli.common import PATH, format_option, overrides_option


@click.command("check")
@click.argument("config", type=PATH)
@overrides_option
@format_option
@click.pass_context
def command(
    ctx: click.Context, config: Path, overrides: tuple[str, ...], format: str | None
) -> None:
    """Validate CONFIG and its tasks and print every option; nothing is run.

    \b
    Example:
      ale check configs/quickstart.yaml --set credit.type=grpo
    """
    from ale._cli.plan import describe_plan
    from ale._config import load_config
    from ale._run.start import Host, check_run

    gc.disable()  # until the end: of what is imported and built nothing is garbage
    ctx.call_on_close(gc.enable)
    host = Host(registry=ctx.obj, checking=True)
    loaded = load_config(config, host.registry, overrides, format)
    ready = check_run(loaded, config.stem, host)
    for note in ready.notes:
        host.report(note)
    redactor = host.redactor(loaded)
    plan = describe_plan(ready, defaults=True).encode("utf-8", "replace")
    click.echo(redactor.scrub(plan).decode("utf-8", "replace"))
    click.echo("\nConfig is valid.")
