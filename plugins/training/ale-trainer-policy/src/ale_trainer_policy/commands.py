"""``ale model`` as click sees it; what it does is imported when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ale.runs import Registry

_path = click.Path(path_type=Path)


@click.command("model")
@click.argument("run", type=_path)
@click.option("--out", type=_path, required=True, metavar="FOLDER", help="To be made.")
@click.option(
    "--after",
    type=click.IntRange(1),
    metavar="STEPS",
    help="After so many steps, as evaluations count them. Default: the newest checkpoint.",
)
@click.option("--merge", is_flag=True, help="With LoRA: the whole model, adapters merged into it.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="llm.KEY=VALUE",
    help="Override an option of the run's model, say where its folder lies now.",
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
    """Write the model that RUN has trained as a folder that transformers loads.

    Of a run that trains LoRA adapters, the folder holds these alone, as PEFT keeps them; they need
    the model that they were trained over. RUN itself is only read, and may still be going on.

    \b
    Examples:
      ale model runs/20260101-120000-3f2a-quickstart --out outputs/model
      ale model RUN --out outputs/after-40 --after 40
      ale model RUN --out outputs/merged --merge
    """
    from ale.errors import NotUsableError
    from ale_trainer_policy.plugin import probe

    found = probe()
    if not found.usable:
        raise NotUsableError(f"{found.reason}. Install with: {found.remedy}")
    from ale_trainer_policy.taken import write_model

    written = write_model(run, out, registry, after=after, merge=merge, overrides=overrides)
    for line in written.lines():
        click.echo(line)
