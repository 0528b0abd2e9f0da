"""``ale train``; what it does is imported when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from ale_trainer_trl.learning import Progress, Trained


@click.group("train")
def train() -> None:
    """Train a model on a data set, with TRL and PEFT.

    \b
    Example:
      ale train dpo dpo.yaml
    """


_config = click.argument("config", type=click.Path(path_type=Path))
_set = click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Over the file.")


@train.command("dpo")
@_config
@_set
def dpo(config: Path, overrides: tuple[str, ...]) -> None:
    """Train on preferences: rows of prompt, chosen and rejected.

    CONFIG is YAML with model_name_or_path, dataset_path, output_dir and further options. Ctrl-C
    ends the training after the update at hand, a second one at once; the same command goes on from
    the last checkpoint.

    \b
    Examples:
      ale train dpo dpo.yaml
      ale train dpo dpo.yaml --set beta=0.2 --set lora.r=8
    """
    from ale_trainer_trl.learning import read_dpo, train_dpo

    _train(train_dpo, read_dpo(config, overrides))


@train.command("grpo")
@_config
@_set
def grpo(config: Path, overrides: tuple[str, ...]) -> None:
    """Train on prompts, with a function that rewards what is sampled.

    CONFIG is as for `ale train dpo`, with `reward: module:function` or `reward: file.py:function`.
    To train on tasks in sandboxes, use `ale run` with trainer: {type: grpo}.

    \b
    Example:
      ale train grpo grpo.yaml
    """
    from ale_trainer_trl.learning import read_grpo, train_grpo

    _train(train_grpo, read_grpo(config, overrides))


def _train(method: Callable[..., Trained], training: Any) -> None:
    """To the end, or to where the user stops it; then the exit status is that of the signal."""
    from ale_trainer_trl.learning import StoppedError
    from ale_trainer_trl.stopping import Stopping

    told = f"training {training.model_name_or_path} on {training.dataset_path}"
    click.echo(told, err=True)
    stopping = Stopping()
    try:
        trained = method(training, progress=_tell, stop=stopping)
    except StoppedError as stopped:
        if stopping.signal is None:
            raise
        click.echo(f"{stopped}; the same command goes on from there", err=True)
        raise SystemExit(128 + stopping.signal) from stopped
    click.echo(trained.summary())


def _tell(progress: Progress) -> None:
    """A line where there are metrics: results go to standard output, progress does not."""
    if progress.metrics:
        click.echo(progress.line(), err=True)
