"""The commands ``ale model`` and ``ale plan``; what they do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ale.commands import PATH, RUN, overrides_option
from ale_trainer_policy.packages import probe

if TYPE_CHECKING:
    from ale.runs import Registry


@click.command("model")
@click.argument("run", type=RUN)
@click.option("--out", type=PATH, required=True, metavar="FOLDER", help="Folder to create.")
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
    their base model. RUN is only read, and may still be running. It may also be the folder of `ale
    dataset train`.

    \b
    Examples:
      ale model runs/20260101-120000-3f2a-quickstart --out outputs/model
      ale model RUN --out outputs/after-40 --after 40
      ale model RUN --out outputs/merged --merge
    """
    probe().check()
    from ale_trainer_policy.export import write_model

    written = write_model(run, out, registry, after=after, merge=merge, overrides=overrides)
    for line in written.lines():
        click.echo(line)


@click.command("plan")
@click.argument("config", type=PATH)
@overrides_option
@click.option(
    "--context",
    type=click.IntRange(16),
    metavar="TOKENS",
    help="Tokens of the longest episode. Default: what the model allows.",
)
@click.option(
    "--memory",
    type=click.FloatRange(0, min_open=True),
    metavar="GIB",
    help="Memory of one device. Default: that of this machine's first GPU, or of the machine "
    "itself.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def plan(
    registry: Registry,
    config: Path,
    overrides: tuple[str, ...],
    context: int | None,
    memory: float | None,
    as_json: bool,
) -> None:
    """Estimate the memory that CONFIG needs to sample and train, and show what would make it fit.

    The model's weights are not read: a folder with its config.json is enough. Only tensors are
    counted; allocators keep some more.

    \b
    Examples:
      ale plan configs/quickstart.yaml
      ale plan train.yaml --context 8192 --memory 80
      ale plan train.yaml --memory 24 --set trainer.activations=recompute
    """
    probe().check()
    from ale_trainer_policy.planning import planned

    lines = planned(config, registry, overrides, context=context, memory=memory, as_json=as_json)
    for line in lines:
        click.echo(line)
