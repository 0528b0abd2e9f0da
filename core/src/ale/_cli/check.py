"""``ale check CONFIG``."""

from pathlib import Path

import click

from ale._cli.common import format_option, overrides_option, registry_of


@click.command("check")
@click.argument("config", type=click.Path(path_type=Path))
@overrides_option
@format_option
@click.pass_context
def command(
    ctx: click.Context, config: Path, overrides: tuple[str, ...], format: str | None
) -> None:
    """Check CONFIG and its tasks without running anything.

    \b
    Example:
      ale check configs/quickstart.yaml --set credit.type=grpo
    """
    from ale._cli.plan import describe_plan
    from ale._config import load_config
    from ale._run.start import Surroundings, check_run

    registry = registry_of(ctx)
    loaded = load_config(config, registry, overrides, format)
    ready = check_run(loaded, config.stem, Surroundings(registry=registry))
    click.echo(describe_plan(ready))
    click.echo("\nNothing is wrong with it.")
