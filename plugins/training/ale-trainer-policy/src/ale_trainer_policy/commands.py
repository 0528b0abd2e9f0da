"""The command ``ale model``; its implementation is imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ale.runs import Registry

_path = click.Path(path_type=Path)


@click.command("model")
@click.argument("run", type=_path)
@click.option("--out", type=_path, required=True, metavar="FOLDER", help="Folder to create.")
@click.option(
    "--after",
    type=click.IntRange(1),
    metavar="STEPS",
    help="Number of steps, as in 'after step N' of evaluations. Default: newest checkpoint.",
)
@click.option("--merge", is_flag=True, help="LoRA runs: write the whole merged model.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="llm.KEY=VALUE",
    help="Override an option of the run's model, such as a moved folder; repeatable.",
)
@click.pass_obj
def model(
    registry: Registry,
    run: Path,
    out: Path,
    after: int | None,
    merge: bool,
    overrides: tuple[str, ...],
) -> None:
    """Export the model that RUN has trained to a folder that transformers loads.

    For a run that trains LoRA adapters, the folder holds the adapters in PEFT's format, which need
    their base model. RUN is only read, and may still be running.

    \b
    Examples:
      ale model runs/20260101-120000-3f2a-quickstart --out outputs/model
      ale model RUN --out outputs/after-40 --after 40
      ale model RUN --out outputs/merged --merge
    """
    from ale.errors import NotUsableError
    from ale_trainer_policy.packages import probe

    found = probe()
    if not found.usable:
        raise NotUsableError(f"{found.reason}. Install with: {found.remedy}")
    from ale_trainer_policy.export import write_model

    written = write_model(run, out, registry, after=after, merge=merge, overrides=overrides)
    for line in written.lines():
        click.echo(line)
